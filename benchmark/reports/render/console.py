"""The console on which commands print tables of text."""

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmark.errors import printable

WIDTH = 150
"""Characters of a line where the output is no terminal."""


class TextConsole(Console):
    """Prints text as it is: brackets are no markup, colons no emoji, and control characters do not reach a terminal."""

    def __init__(self, width: int | None = None) -> None:
        """``width``: characters of a line, by default those of the terminal."""
        super().__init__(width=width or (None if sys.stdout.isatty() else WIDTH), markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text without control characters."""
        return super().render_str(printable(text), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to `benchmark.cli.main`."""
        raise
