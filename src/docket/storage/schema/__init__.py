"""Everything that Python and the scripts both know, declared once: the names of keys, the fields of
records, flags, locations, the rows of requests and answers, the numbers of statistics.

A constant of these modules is also a definition for scripts, under the same name (`lua.py`), and a
script may name the fields of a record or a row instead of counting them (`layouts.py`).
"""
