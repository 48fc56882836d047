"""`python -m tests.fleet`."""

import sys

from tests.fleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
