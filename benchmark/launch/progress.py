"""What a launch shows: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmark.launch.tasks import Listener, Outcome, Rounds, Task
from benchmark.runs.status import RunState

STATUS_SECONDS = 10.0
"""Least time between two status lines of the plain view."""

ROWS = 12
"""Current runs that a live view shows."""


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def is_terminal(stream: TextIO) -> bool:
    """Whether a live view can be drawn on ``stream``."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def draw(
    headline: str,
    share: float,
    current: Sequence[tuple[str, int, int]],
    hidden: int,
    footer: Iterable[Text] = (),
) -> RenderableType:
    """A live view: a headline, a bar, a row per current run, and lines below.

    Args:
        headline: Counts and times.
        share: Share of the work that is done, 0 to 1.
        current: (key, rounds done, all rounds) of runs at work.
        hidden: Number of further runs at work.
        footer: Lines below.
    """
    rows = Table.grid(padding=(0, 1), expand=True)
    rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    rows.add_column(width=20)
    rows.add_column(justify="right", no_wrap=True)
    for key, done, rounds in current:
        bar = ProgressBar(total=max(1, rounds), completed=done, width=20)
        rows.add_row(Text(f"  {key}"), bar, f"{done}/{rounds} rounds")
    more = [Text(f"  and {hidden} more", style="dim")] if hidden > 0 else []
    total = Table.grid(expand=True)
    total.add_row(Text(headline, style="bold", no_wrap=True, overflow="ellipsis"))
    total.add_row(ProgressBar(total=1.0, completed=share))
    return Group(total, rows, *more, *footer)


class LaunchCounts:
    """Counts of a launch. Speed is in rounds of this launch; rounds that a resumed run did before do not count."""

    def __init__(self, done_before: int, clock: Callable[[], float]) -> None:
        self.done_before = done_before
        self.clock = clock
        self.began = clock()
        self.first_task: float | None = None
        self.rounds: dict[str, int] = {}
        self.current: dict[str, Rounds] = {}
        self.states: Counter[RunState] = Counter()
        self._ended_rounds = 0
        self._worked = 0

    def task_started(self, key: str) -> None:
        """Add a current task. The clock of the speed starts with the first one, after workers have started."""
        if self.first_task is None:
            self.first_task = self.clock()
        self.current[key] = Rounds(1, 0, self.rounds[key])

    def task_ended(self, outcome: Outcome) -> None:
        """Count a task that has ended. However it ended, none of its rounds is left to wait for."""
        rounds = self.current.pop(outcome.key)
        done = rounds.total if outcome.state is RunState.DONE else rounds.done
        self._ended_rounds += self.rounds[outcome.key]
        self._worked += _worked(rounds._replace(done=done))
        self.states[outcome.state] += 1

    @property
    def ended(self) -> int:
        """Runs that have ended, earlier ones included."""
        return self.done_before + self.states.total()

    @property
    def total(self) -> int:
        """All runs."""
        return self.done_before + len(self.rounds)

    @property
    def share(self) -> float:
        """Share of the launched rounds that are done or need not be waited for, 0 to 1."""
        total = sum(self.rounds.values())
        return self._finished_rounds() / total if total else 1.0

    def seconds_left(self) -> float | None:
        """Seconds left at the speed so far; None before the first round."""
        worked = self._worked + sum(map(_worked, self.current.values()))
        if self.first_task is None or worked <= 0:
            return None
        left = sum(self.rounds.values()) - self._finished_rounds()
        return left * (self.clock() - self.first_task) / worked

    def problems(self) -> list[str]:
        """``["1 diverged", "2 failed"]``."""
        states = sorted(self.states.items())
        return [f"{count} {state}" for state, count in states if state is not RunState.DONE]

    def status(self) -> str:
        """``12/72 runs, 31 % of rounds, about 2 min left``."""
        left = self.seconds_left()
        parts = [f"{self.ended}/{self.total} runs", f"{100 * self.share:.0f} % of rounds"]
        parts += [] if left is None else [f"about {duration(left)} left"]
        return ", ".join([*parts, *self.problems()])

    def summary(self) -> str:
        """``72/72 runs in 12 min: 68 done before, 4 done now``."""
        done = f"{self.states[RunState.DONE]} done"
        counts = [f"{self.done_before} done before", f"{done} now"] if self.done_before else [done]
        counts += self.problems()
        if self.ended < self.total:
            counts.append(f"{self.total - self.ended} not begun")
        return f"{self.ended}/{self.total} runs in {duration(self.clock() - self.began)}: {', '.join(counts)}"

    def _finished_rounds(self) -> int:
        return self._ended_rounds + sum(rounds.done for rounds in self.current.values())


def _worked(rounds: Rounds) -> int:
    """Rounds of this launch. The first report comes after the first round, or before it."""
    return max(0, rounds.done - max(0, rounds.first - 1))


class ProgressView(Listener):
    """Shows a launch on a stream: live on a terminal, else one line per ended run and a status line now and then.

    A thread of rich draws the live view from counts, so that a call costs nothing, however many short runs there are.
    """

    def __init__(
        self,
        done_before: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        """``done_before``: runs that are done and not launched. ``stream``: default stdout."""
        stream = sys.stdout if stream is None else stream
        self.counts = LaunchCounts(done_before, clock)
        self._console = console or Console(file=stream)
        self._stream = stream
        self._lock = threading.Lock()
        self._stopping = ""
        self._status_at = clock()
        self._live: Live | None = None
        if console is not None or is_terminal(stream):
            self._live = Live(
                get_renderable=self.picture,
                console=self._console,
                refresh_per_second=4,
                transient=True,
                vertical_overflow="crop",
            )

    def picture(self) -> RenderableType:
        """The live view."""
        with self._lock:
            counts = self.counts
            rows = max(1, min(ROWS, self._console.height - 5))
            current = [
                (key, rounds.done, rounds.total) for key, rounds in list(counts.current.items())[:rows]
            ]
            footer = [Text(self._stopping, style="yellow")] if self._stopping else []
            return draw(counts.status(), counts.share, current, len(counts.current) - rows, footer)

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do, or begin to draw."""
        counts = self.counts
        counts.rounds = {task.key: task.rounds for task in tasks}
        counts.began = self._status_at = counts.clock()
        if self._live is None:
            before = f", {counts.done_before} done before" if counts.done_before else ""
            self._say(f"{counts.total} runs{before}, {len(tasks)} to do")
        elif tasks:
            self._live.start(refresh=True)

    def task_started(self, key: str) -> None:
        """Add the run to the live view."""
        with self._lock:
            self.counts.task_started(key)

    def progress(self, key: str, rounds: Rounds) -> None:
        """Note the progress of a run."""
        with self._lock:
            self.counts.current[key] = rounds
        self._say_status()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and why if it ended badly. The live view counts those that are done."""
        with self._lock:
            self.counts.task_ended(outcome)
        done = outcome.state is RunState.DONE
        why = "" if done else f": {outcome.message.strip().partition(chr(10))[0]}"
        if self._live is None or not done:
            style = "yellow" if outcome.state in (RunState.INTERRUPTED, RunState.RUNNING) else "red"
            self._say(f"{outcome.state:<11} {outcome.key} ({duration(outcome.seconds)}){why}", style)
        self._say_status()

    def stopping(self, message: str) -> None:
        """Say that the launch stops."""
        self._stopping = f"stopping on {message}"
        if self._live is None:
            self._say(self._stopping)

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """Sum up."""
        if self.counts.rounds:
            if self._live is not None:
                self._live.stop()
            self._say(self.counts.summary(), "bold")

    def _say(self, line: str, style: str = "") -> None:
        if self._live is None:
            print(line, file=self._stream, flush=True)
        else:
            # As text: brackets in keys and messages are no markup, and numbers are not coloured.
            self._console.print(Text(line, style=style))

    def _say_status(self) -> None:
        now = self.counts.clock()
        if self._live is None and now - self._status_at >= STATUS_SECONDS:
            self._status_at = now
            self._say(self.counts.status())
