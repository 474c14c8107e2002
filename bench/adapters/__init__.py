"""One file per task system. Each runs in its own virtual environment.

`python -m bench.adapters <system> produce` executes commands from its standard input (serving.py);
`… work` runs one worker process until it is stopped. The docstring of an adapter states the
system's settings and is printed with the results. Adapters know nothing of each other and import
only the system and this package.
"""
