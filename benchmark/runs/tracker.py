"""What an experiment tracker has to be for a run."""

from collections.abc import Iterable

from benchmark.engine.records import Record
from benchmark.runs.status import Result, RunState

TRACKED = "tracked"
"""File of an attempt and of a finished run: the last round that was sent elsewhere."""


class Tracker:
    """Sends a run elsewhere while it is carried out, and raises nothing. This one sends nothing."""

    def log(self, records: Iterable[Record]) -> None:
        """Send what rounds recorded."""

    def end(self, state: RunState, result: Result | None = None) -> None:
        """The process leaves the run."""
