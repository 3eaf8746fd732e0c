"""Runs the command line with `python -m ctx`."""

import sys

from ctx.cli import main

sys.exit(main())
