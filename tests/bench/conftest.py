"""Measurements are called by the command line."""

from command_line import cli  # noqa: F401
