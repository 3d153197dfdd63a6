"""What is shown of runs that a cluster carries out: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from benchmark.launch.progress import draw, duration, is_terminal
from benchmark.launch.slurm.submissions import Snapshot
from benchmark.runs.status import RunState

SECONDS = 30.0
"""Least time between two plain lines, unless a run has failed or all have ended."""

HINT = Text("Ctrl-C leaves submitted runs alone; the same command follows them again", style="dim")


class SnapshotView:
    """Shows how far the runs are, in ``live`` or as lines on ``stream``."""

    def __init__(
        self,
        stream: TextIO,
        live: Live | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._live, self._clock = stream, live, clock
        self._began = clock()
        self._ended_before: int | None = None
        self._line = ""
        self._line_at = -SECONDS
        self._failed = 0

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot. A plain line is printed if something has changed."""
        if self._ended_before is None:
            self._ended_before = snapshot.ended
        line, now = str(snapshot), self._clock()
        text = f"{line}{self._times(snapshot)}"
        if self._live is not None:
            hidden = snapshot.counts.get(RunState.RUNNING, 0) - len(snapshot.current)
            share = snapshot.ended / max(1, snapshot.total)
            self._live.update(draw(text, share, snapshot.current, hidden, [HINT]), refresh=True)
            return
        failed = snapshot.counts.get(RunState.FAILED, 0) + snapshot.counts.get(RunState.MISSING, 0)
        urgent = failed > self._failed or snapshot.ended == snapshot.total
        if line != self._line and (urgent or now - self._line_at >= SECONDS):
            self._line, self._line_at, self._failed = line, now, failed
            print(text, file=self._stream, flush=True)

    def _times(self, snapshot: Snapshot) -> str:
        """``; 12 min, about 40 min left``. What is left is not known before a run has ended."""
        spent = self._clock() - self._began
        gained = snapshot.ended - (self._ended_before or 0)
        left = snapshot.total - snapshot.ended
        about = f", about {duration(left * spent / gained)} left" if gained and left else ""
        return f"; {duration(spent)}{about}"


@contextmanager
def view(stream: TextIO | None = None) -> Iterator[SnapshotView]:
    """The view for ``stream`` (default stdout)."""
    stream = sys.stdout if stream is None else stream
    if not is_terminal(stream):
        yield SnapshotView(stream)
        return
    console = Console(file=stream)
    with Live(console=console, transient=True, auto_refresh=False, vertical_overflow="crop") as live:
        yield SnapshotView(stream, live)
