"""What a launch shows while it works: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmark.launch.local import Listener, Outcome, Task

STATUS_SECONDS = 10.0
"""Least time between two status lines of the plain view."""

REFRESHES = 4
"""Refreshes per second of the live view."""

ROWS = 12
"""Current runs that the live view shows."""


def listener(already_done: int = 0, stream: TextIO | None = None) -> Listener:
    """The view for ``stream`` (default stdout). ``already_done``: runs that count as done and are not launched."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return RichProgress(already_done, Console(file=stream))
    return PlainProgress(already_done, stream)


def duration(seconds: float) -> str:
    """Words of the size that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Tally:
    """Counts of a launch. Speed is in rounds of this launch: rounds that a resumed run had done are no work of it."""

    def __init__(self, already_done: int, clock: Callable[[], float]) -> None:
        self.already_done = already_done
        self.clock = clock
        self.began = clock()
        self.first_task: float | None = None
        self.rounds: dict[str, int] = {}
        # key -> (rounds done before this launch, rounds done); the first is not known before the first report
        self.current: dict[str, tuple[int | None, int]] = {}
        self.endings: Counter[str] = Counter()
        self._all_rounds = 0
        self._ended_rounds = 0
        self._worked = 0

    def started(self, tasks: Sequence[Task]) -> None:
        """Take in what is to do."""
        self.rounds = {task.key: task.rounds for task in tasks}
        self._all_rounds = sum(self.rounds.values())
        self.began = self.clock()

    def task_started(self, key: str) -> None:
        """A run begins. The clock of the speed starts with the first one: starting workers is no work."""
        if self.first_task is None:
            self.first_task = self.clock()
        self.current[key] = (None, 0)

    def progress(self, key: str, round: int, rounds: int) -> None:
        """A run is at ``round``."""
        before, _ = self.current[key]
        if before is None:  # the first report comes after the first round, or before it
            before = max(0, round - 1)
        self.current[key] = (before, round)

    def task_ended(self, outcome: Outcome) -> None:
        """A run has ended; whatever way, none of its rounds is left to wait for."""
        before, done = self.current.pop(outcome.key)
        rounds = self.rounds[outcome.key]
        if outcome.status == "done":
            done = rounds
        self._ended_rounds += rounds
        self._worked += done - (before or 0)
        self.endings[outcome.status] += 1

    @property
    def ended(self) -> int:
        """Runs that have ended, earlier ones included."""
        return self.already_done + self.endings.total()

    @property
    def total(self) -> int:
        """All runs."""
        return self.already_done + len(self.rounds)

    @property
    def share(self) -> float:
        """Share of the launched rounds that nobody has to wait for any more, 0 to 1."""
        return self._covered() / self._all_rounds if self._all_rounds else 1.0

    def seconds_left(self) -> float | None:
        """At the speed so far; None before the first round."""
        worked = self._worked + sum(done - (before or 0) for before, done in self.current.values())
        if self.first_task is None or worked <= 0:
            return None
        return (self._all_rounds - self._covered()) * (self.clock() - self.first_task) / worked

    def troubles(self) -> str:
        """``1 failed, 2 crashed``, or nothing."""
        return ", ".join(
            f"{count} {status}" for status, count in sorted(self.endings.items()) if status != "done"
        )

    def status(self) -> str:
        """``12/72 runs, 31 % of rounds, about 2 min left``."""
        parts = [f"{self.ended}/{self.total} runs", f"{100 * self.share:.0f} % of rounds"]
        left = self.seconds_left()
        if left is not None:
            parts.append(f"about {duration(left)} left")
        return ", ".join(part for part in (*parts, self.troubles()) if part)

    def summary(self) -> str:
        """The last line."""
        spent = duration(self.clock() - self.began)
        counts = [f"{self.endings['done']} done now" if self.already_done else f"{self.endings['done']} done"]
        if self.already_done:
            counts.insert(0, f"{self.already_done} done before")
        if self.troubles():
            counts.append(self.troubles())
        missing = self.total - self.ended
        if missing:
            counts.append(f"{missing} not begun")
        return f"{self.ended}/{self.total} runs in {spent}: {', '.join(counts)}"

    def _covered(self) -> int:
        return self._ended_rounds + sum(done for _, done in self.current.values())


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


class PlainProgress:
    """One line per ended run, and at most one status line in `STATUS_SECONDS`."""

    def __init__(
        self, already_done: int = 0, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._tally = Tally(already_done, clock)
        self._said_at = clock()

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _say_status(self) -> None:
        now = self._tally.clock()
        if now - self._said_at >= STATUS_SECONDS:
            self._said_at = now
            self._say(self._tally.status())

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do."""
        self._tally.started(tasks)
        self._said_at = self._tally.clock()
        before = f", {self._tally.already_done} done before" if self._tally.already_done else ""
        self._say(f"{self._tally.total} runs{before}, {len(tasks)} to do")

    def task_started(self, key: str) -> None:
        """Nothing to say."""
        self._tally.task_started(key)

    def progress(self, key: str, round: int, rounds: int) -> None:
        """Say the status if the last one is long ago."""
        self._tally.progress(key, round, rounds)
        self._say_status()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how it ended; why, where it ended badly."""
        self._tally.task_ended(outcome)
        why = "" if outcome.status == "done" else f": {_first_line(outcome.message)}"
        self._say(f"{outcome.status:<11} {outcome.key} ({duration(outcome.seconds)}){why}")
        self._say_status()

    def stopping(self, message: str) -> None:
        """Say so."""
        self._say(f"stopping on {message}")

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """Sum up."""
        if self._tally.rounds:
            self._say(self._tally.summary())


class RichProgress:
    """A live view: all runs, and the ones at work now. Lines above it for runs that did not end well.

    A thread of rich draws it a few times a second from counts that the launcher's calls update; however many short
    runs there are, a call costs no drawing.
    """

    def __init__(
        self,
        already_done: int = 0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = Console() if console is None else console
        self._tally = Tally(already_done, clock)
        self._lock = threading.Lock()
        self._stopping = ""
        self._live = Live(
            get_renderable=self._view,
            console=self._console,
            refresh_per_second=REFRESHES,
            transient=True,
            vertical_overflow="crop",
        )

    def _view(self) -> RenderableType:
        with self._lock:
            tally = self._tally
            total = Table.grid(expand=True)
            total.add_row(Text(tally.status(), style="bold", no_wrap=True, overflow="ellipsis"))
            total.add_row(ProgressBar(total=1.0, completed=tally.share))
            rows = Table.grid(padding=(0, 1), expand=True)
            rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
            rows.add_column(width=20)
            rows.add_column(justify="right", no_wrap=True)
            shown = max(1, min(ROWS, self._console.height - 5))
            for key, (_, done) in list(tally.current.items())[:shown]:
                rounds = max(1, tally.rounds[key])
                rows.add_row(
                    Text(f"  {key}"),
                    ProgressBar(total=rounds, completed=done, width=20),
                    f"{done}/{rounds} rounds",
                )
            more = len(tally.current) - shown
        end: list[RenderableType] = [Text(f"  and {more} more", style="dim")] if more > 0 else []
        if self._stopping:
            end.append(Text(self._stopping, style="yellow"))
        return Group(total, rows, *end)

    def _say(self, line: str, style: str) -> None:
        # Keys and messages are text: a bracket in them is no markup, a number in them is not coloured.
        self._console.print(Text(line, style=style))

    def started(self, tasks: Sequence[Task]) -> None:
        """Begin to draw."""
        with self._lock:
            self._tally.started(tasks)
        if tasks:
            self._live.start(refresh=True)

    def task_started(self, key: str) -> None:
        """Show the run."""
        with self._lock:
            self._tally.task_started(key)

    def progress(self, key: str, round: int, rounds: int) -> None:
        """Move its bar."""
        with self._lock:
            self._tally.progress(key, round, rounds)

    def task_ended(self, outcome: Outcome) -> None:
        """Count it; say why, where it ended badly."""
        with self._lock:
            self._tally.task_ended(outcome)
        if outcome.status != "done":
            style = "yellow" if outcome.status in ("interrupted", "busy") else "red"
            self._say(f"{outcome.status} {outcome.key}: {_first_line(outcome.message)}", style)

    def stopping(self, message: str) -> None:
        """Show it below the runs, where the eye is."""
        self._stopping = f"stopping on {message}"

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """Stop drawing, sum up."""
        if self._tally.rounds:
            self._live.stop()
            self._say(self._tally.summary(), "bold")
