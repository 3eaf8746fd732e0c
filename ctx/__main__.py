"""`python -m ctx`."""

import sys

from ctx.cli import main

sys.exit(main())
