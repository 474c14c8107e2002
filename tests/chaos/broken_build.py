"""`python -m tests.chaos.broken_build <name>` makes the changes of a broken build."""

import sys

from chaos.broken import BUILDS

if __name__ == "__main__":
    BUILDS[sys.argv[1]].apply()
