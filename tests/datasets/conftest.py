"""Lets the tests of this folder import what the data sets of image files are tested with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
