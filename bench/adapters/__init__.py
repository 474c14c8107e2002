"""One file per task system, each run in a virtual environment of its own.

`python -m bench.adapters <system> produce` obeys orders from its standard input (serving.py);
`… work` runs one worker process until it is stopped. The docstring of an adapter states the
system's settings and is printed with the results. Adapters know nothing of each other and import
only the system and this package.
"""
