"""What tests of reports use: a browser, and the command line."""

from chromium import browser
from command_line import cli

__all__ = ["browser", "cli"]
