"""`python -m recado`, where the command is not on the path."""

import sys

from recado.cli import main

sys.exit(main())
