"""Lets the tests of this folder import the federations that the engine's tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
