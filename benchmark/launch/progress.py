"""What a launch shows: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmark.launch.tasks import Listener, Outcome, Task
from benchmark.runs.status import RunState

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Snapshot

STATUS_SECONDS = 10.0
"""Least time between two plain status lines of a local launch."""

DRAW_SECONDS = 0.25
"""Least time between two changes of a live view."""

ROWS = 12
"""Current runs that a live view shows."""

SNAPSHOT_SECONDS = 30.0
"""Least time between two plain lines about a cluster, unless a run has failed or all have ended."""

HINT = Text("Ctrl-C leaves submitted runs alone; the same command follows them again", style="dim")


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Screen:
    """Shows the status of a launch: in place on a terminal, as a line now and then elsewhere."""

    def __init__(
        self,
        line_seconds: float,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``line_seconds``: least time between two plain lines. ``stream``: default stdout."""
        self.stream = sys.stdout if stream is None else stream
        self.is_live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.shown_at = -line_seconds
        self._clock, self._seconds = clock, DRAW_SECONDS if self.is_live else line_seconds
        self._console = Console(file=self.stream)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def is_due(self) -> bool:
        """Whether it is time to show the status again."""
        return self._clock() - self.shown_at >= self._seconds

    def show(
        self,
        headline: str,
        share: float,
        current: Sequence[tuple[str, int, int]],
        working: int,
        footer: Iterable[Text] = (),
    ) -> None:
        """Show the status.

        Args:
            headline: Counts and times: all that a plain line says.
            share: Share of the work that is done, 0 to 1.
            current: (key, rounds done, all rounds) of runs at work.
            working: Number of runs at work, if ``current`` has not all of them.
            footer: Lines below.
        """
        self.shown_at = self._clock()
        if not self.is_live:
            print(headline, file=self.stream, flush=True)
            return
        shown = current[: max(1, min(ROWS, self._console.height - 5))]
        self._live.start()
        self._live.update(_draw(headline, share, shown, working - len(shown), footer), refresh=True)

    def say(self, line: str, style: str = "") -> None:
        """Print a line that stays, above the live view."""
        if self.is_live:
            # As text: brackets in keys and messages are no markup, and numbers are not coloured.
            self._console.print(Text(line, style=style))
        else:
            print(line, file=self.stream, flush=True)

    def close(self) -> None:
        """Remove the live view."""
        self._live.stop()


def _draw(
    headline: str,
    share: float,
    current: Sequence[tuple[str, int, int]],
    hidden: int,
    footer: Iterable[Text],
) -> RenderableType:
    """A headline, a bar, a row per current run, and lines below."""
    total = Table.grid(expand=True)
    total.add_row(Text(headline, style="bold", no_wrap=True, overflow="ellipsis"))
    total.add_row(ProgressBar(total=1.0, completed=share))
    rows = Table.grid(padding=(0, 1), expand=True)
    rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    rows.add_column(width=20)
    rows.add_column(justify="right", no_wrap=True)
    for key, done, rounds in current:
        bar = ProgressBar(total=max(1, rounds), completed=done, width=20)
        rows.add_row(Text(f"  {key}"), bar, f"{done}/{rounds} rounds")
    more = [Text(f"  and {hidden} more", style="dim")] if hidden > 0 else []
    return Group(total, rows, *more, *footer)


class ProgressView(Listener):
    """Shows a local launch. Speed is in rounds of this launch; what a resumed run did before does not count."""

    def __init__(
        self,
        done_before: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``done_before``: runs that are done and not launched. ``stream``: default stdout."""
        self._screen = Screen(STATUS_SECONDS, stream, clock)
        self._clock, self._done_before = clock, done_before
        self._began, self._first_task = clock(), 0.0
        self._rounds: dict[str, int] = {}
        self._current: dict[str, int | None] = {}  # the round that each run reported last
        self._states: Counter[RunState] = Counter()
        self._left = self._worked = 0
        self._stopping = ""

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do."""
        self._rounds = {task.key: task.rounds for task in tasks}
        self._left = sum(self._rounds.values())
        self._began = self._screen.shown_at = self._clock()
        before = f", {self._done_before} done before" if self._done_before else ""
        if not self._screen.is_live:
            self._screen.say(f"{self._total} runs{before}, {len(tasks)} to do")

    def task_started(self, key: str) -> None:
        """Add the run. The clock of the speed starts with the first one, after workers have started."""
        self._first_task = self._first_task or self._clock()
        self._current[key] = None
        self._show()

    def progress(self, key: str, done: int) -> None:
        """Note the progress of a run. Its first report says where it begins."""
        before = self._current[key]
        self._left -= done - (before or 0)
        self._worked += 0 if before is None else done - before
        self._current[key] = done
        self._show()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and why if it ended badly. The live view counts those that are done."""
        rest = self._rounds[outcome.key] - (self._current.pop(outcome.key) or 0)
        done = outcome.state is RunState.DONE
        # However it ended, none of its rounds is left to wait for.
        self._left -= rest
        self._worked += rest if done else 0
        self._states[outcome.state] += 1
        why = "" if done else f": {outcome.message.strip().partition(chr(10))[0]}"
        if not (self._screen.is_live and done):
            style = "yellow" if outcome.state in (RunState.INTERRUPTED, RunState.RUNNING) else "red"
            self._screen.say(f"{outcome.state:<11} {outcome.key} ({duration(outcome.seconds)}){why}", style)
        self._show()

    def stopping(self, message: str) -> None:
        """Say that the launch stops."""
        self._stopping = f"stopping on {message}"
        if self._screen.is_live:
            self._show(urgent=True)
        else:
            self._screen.say(self._stopping)

    def finished(self) -> None:
        """Sum up: ``72/72 runs in 12 min: 68 done before, 4 done now``."""
        self._screen.close()
        if not self._rounds:
            return
        done = f"{self._states[RunState.DONE]} done"
        counts = [f"{self._done_before} done before", f"{done} now"] if self._done_before else [done]
        counts += self._problems()
        if self._ended < self._total:
            counts.append(f"{self._total - self._ended} not begun")
        spent = duration(self._clock() - self._began)
        self._screen.say(f"{self._ended}/{self._total} runs in {spent}: {', '.join(counts)}", "bold")

    @property
    def _ended(self) -> int:
        return self._done_before + self._states.total()

    @property
    def _total(self) -> int:
        return self._done_before + len(self._rounds)

    def _problems(self) -> list[str]:
        states = sorted(self._states.items())
        return [f"{count} {state}" for state, count in states if state is not RunState.DONE]

    def _show(self, urgent: bool = False) -> None:
        """``12/72 runs, 31 % of rounds, about 2 min left``, if it is urgent or time to."""
        if not (urgent or self._screen.is_due()):
            return
        rounds = sum(self._rounds.values())
        share = (rounds - self._left) / rounds if rounds else 1.0
        parts = [f"{self._ended}/{self._total} runs", f"{100 * share:.0f} % of rounds"]
        if self._worked:
            seconds = self._left * (self._clock() - self._first_task) / self._worked
            parts.append(f"about {duration(seconds)} left")
        current = [(key, done or 0, self._rounds[key]) for key, done in self._current.items()]
        footer = [Text(self._stopping, style="yellow")] if self._stopping else []
        headline = ", ".join([*parts, *self._problems()])
        self._screen.show(headline, share, current, len(current), footer)


class SnapshotView:
    """Shows how far the runs are. Without a live view, only if something has changed."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``stream``: default stdout."""
        self._screen = Screen(SNAPSHOT_SECONDS, stream, clock)
        self._clock, self._began = clock, clock()
        self._ended_before: int | None = None
        self._line = ""
        self._failed = 0

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot, if it is time to or urgent."""
        if self._ended_before is None:
            self._ended_before = snapshot.ended
        line = str(snapshot)
        failed = snapshot.counts.get(RunState.FAILED, 0) + snapshot.counts.get(RunState.MISSING, 0)
        urgent = failed > self._failed or snapshot.ended == snapshot.total
        if self._screen.is_live or (line != self._line and (urgent or self._screen.is_due())):
            self._line, self._failed = line, failed
            self._screen.show(
                f"{line}{self._times(snapshot)}",
                snapshot.ended / max(1, snapshot.total),
                snapshot.current,
                snapshot.counts.get(RunState.RUNNING, 0),
                [HINT],
            )

    def close(self) -> None:
        """Remove the live view."""
        self._screen.close()

    def _times(self, snapshot: Snapshot) -> str:
        """``; 12 min, about 40 min left``. What is left is not known before a run has ended."""
        spent = self._clock() - self._began
        gained = snapshot.ended - (self._ended_before or 0)
        left = snapshot.total - snapshot.ended
        about = f", about {duration(left * spent / gained)} left" if gained and left else ""
        return f"; {duration(spent)}{about}"
