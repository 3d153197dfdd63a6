"""What is shown of runs that others carry out: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmark.launch.progress import duration
from benchmark.launch.slurm.submissions import Snapshot, View

SECONDS = 30.0
"""Least time between two plain lines, unless a run has ended badly or all have ended."""


class PlainView:
    """A line when something has changed, now and then."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        every: float = SECONDS,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._clock, self._every = clock, every
        self._pace = Pace(clock)
        self._told = ""
        self._trouble = 0
        self._told_at = -every

    def show(self, snapshot: Snapshot) -> None:
        """As `View` says."""
        self._pace.note(snapshot)
        line, now = str(snapshot), self._clock()
        trouble = snapshot.counts.get("failed", 0) + snapshot.counts.get("lost", 0)
        urgent = trouble > self._trouble or snapshot.ended == snapshot.total
        if line == self._told or not (urgent or now - self._told_at >= self._every):
            return
        self._told, self._told_at, self._trouble = line, now, trouble
        print(f"{line}{self._pace.words(snapshot)}", file=self._stream, flush=True)


class Pace:
    """How fast runs end, counted from the first look."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._ended: int | None = None

    def note(self, snapshot: Snapshot) -> None:
        """Take the first look as the beginning."""
        if self._ended is None:
            self._ended = snapshot.ended

    def words(self, snapshot: Snapshot) -> str:
        """``; 12 min, about 40 min left``; what is left is not known before a run has ended."""
        spent = self._clock() - self._began
        gained = snapshot.ended - (self._ended or 0)
        left = snapshot.total - snapshot.ended
        about = f", about {duration(left * spent / gained)} left" if gained and left else ""
        return f"; {duration(spent)}{about}"


class LiveView:
    """Counts, a bar, and the runs at work."""

    def __init__(self, live: Live, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = live
        self._pace = Pace(clock)

    def show(self, snapshot: Snapshot) -> None:
        """As `View` says."""
        self._pace.note(snapshot)
        self._live.update(self.picture(snapshot), refresh=True)

    def picture(self, snapshot: Snapshot) -> RenderableType:
        """What the terminal shows."""
        rows = Table.grid(padding=(0, 1), expand=True)
        rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        rows.add_column(width=20)
        rows.add_column(justify="right", no_wrap=True)
        for key, round, rounds in snapshot.current:
            bar = ProgressBar(total=max(1, rounds), completed=round, width=20)
            rows.add_row(Text(f"  {key}"), bar, f"{round}/{rounds} rounds")
        more = snapshot.counts.get("running", 0) - len(snapshot.current)
        end = [Text(f"  and {more} more", style="dim")] if more > 0 else []
        hint = Text(
            "Ctrl-C leaves what was submitted alone; the same command looks after it again", style="dim"
        )
        head = Text(f"{snapshot}{self._pace.words(snapshot)}", style="bold")
        return Group(
            head, ProgressBar(total=max(1, snapshot.total), completed=snapshot.ended), rows, *end, hint
        )


@contextmanager
def view(stream: TextIO | None = None) -> Iterator[View]:
    """The view for ``stream`` (default stdout)."""
    stream = sys.stdout if stream is None else stream
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainView(stream)
        return
    with Live(
        console=Console(file=stream), transient=True, auto_refresh=False, vertical_overflow="crop"
    ) as live:
        yield LiveView(live)
