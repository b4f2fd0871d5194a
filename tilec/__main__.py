"""`python -m tilec`: the command line."""

import sys

from tilec.cli import main

sys.exit(main())
