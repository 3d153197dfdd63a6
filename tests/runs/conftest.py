"""Lets the tests of this folder, and the workers that they start, import the work functions of the launcher's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
