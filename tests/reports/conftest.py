"""What tests of reports use: a browser, the command line, and a report about made-up runs."""

from chromium import browser
from command_line import cli
from made_up_report import folder, page

__all__ = ["browser", "cli", "folder", "page"]
