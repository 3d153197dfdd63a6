"""What is shown of a launch: one live view on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from benchmark.launch.drawing import Drawing, Grid
from benchmark.launch.progress import Progress, duration
from benchmark.launch.tasks import Listener, Outcome, Task, say
from benchmark.runs.status import RunState

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Snapshot

STATUS_SECONDS, STATUS_SHARE = 10.0, 0.05
"""Least time, and least share of the work, between two status lines. Both must have passed."""

FRAMES_PER_SECOND = 1.0
"""How often the live view is drawn. With 780 runs one takes 10 to 20 ms."""


class ProgressView(Listener):
    """Shows a launch. It is a context: inside, on a terminal, the live view is shown below whatever is printed."""

    def __init__(
        self,
        progress: Progress,
        console: Console,
        grids: Sequence[Grid] = (),
        *,
        verbose: bool = False,
        seed_ended: Callable[[int], None] | None = None,
    ) -> None:
        """Take what is to be shown.

        Args:
            progress: How far the runs are.
            console: Of the standard output.
            grids: The tables that the runs belong to.
            verbose: Print a line for every run that has ended, not only if it ended badly.
            seed_ended: Called with a seed when all its runs have ended and runs of other seeds have not.
        """
        self._progress, self._verbose, self._seed_ended = progress, verbose, seed_ended
        self._open_seeds: Counter[int] = Counter()
        self._told_at, self._told_share, self._told = -STATUS_SECONDS, -STATUS_SHARE, ""
        self._live = None
        if sys.stdout.isatty() and console.is_interactive:
            drawing = Drawing(progress, grids)
            self._live = _SafeLive(
                drawing,
                console=console,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stderr=sys.stderr.isatty(),
            )

    def __enter__(self) -> ProgressView:
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do."""
        self._progress.begin(tasks)
        self._open_seeds = Counter(self._progress.seeds[task.key] for task in tasks)
        done = self._progress.ended_before
        before = f", {done} done before" if done else ""
        say(f"{len(self._progress.states)} runs{before}, {len(tasks)} to do")
        self._told_at, self._told_share = self._progress.clock(), 0.0

    def task_started(self, key: str) -> None:
        """Note it."""
        self._progress.start(key)

    def progress(self, key: str, done: int) -> None:
        """Note it."""
        self._progress.advance(key, done)
        self._tell()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and why if it ended badly."""
        done, stopped = outcome.state is RunState.DONE, outcome.state is RunState.INTERRUPTED
        self._progress.end(outcome.key, outcome.state)
        if self._verbose or not (done or stopped):
            why = "" if done else f": {outcome.message.strip().partition(chr(10))[0]}"
            say(f"{outcome.state:<11} {outcome.key} ({duration(outcome.seconds)}){why}")
        seed = self._progress.seeds[outcome.key]
        self._open_seeds[seed] -= 1
        if self._seed_ended and not stopped and not self._open_seeds[seed] and self._open_seeds.total():
            self._seed_ended(seed)
        self._tell()

    def stopping(self, message: str) -> None:
        """Say that the launch stops."""
        say(f"stopping on {message}")

    def finished(self) -> None:
        """Sum up: ``72/72 runs in 12 min: 68 done before, 4 done now``."""
        progress = self._progress
        if not progress.rounds:
            return
        done = f"{progress.counts[RunState.DONE] - progress.before[RunState.DONE]} done"
        counts = [f"{progress.ended_before} done before", f"{done} now"] if progress.ended_before else [done]
        counts += progress.other_counts()
        total = len(progress.states)
        if progress.ended < total:
            counts.append(f"{total - progress.ended} not begun")
        took = duration(progress.clock() - progress.began)
        say(f"{progress.ended}/{total} runs in {took}: {', '.join(counts)}")

    def show(self, snapshot: Snapshot) -> None:
        """Show the runs of a cluster."""
        self._progress.take(snapshot)
        self._tell(last=self._progress.ended == len(self._progress.states))

    def _tell(self, last: bool = False) -> None:
        """Print a status line if it is new and time to, unless there is the live view."""
        progress = self._progress
        now, share = progress.clock(), progress.share
        due = now - self._told_at >= STATUS_SECONDS and round(share - self._told_share, 6) >= STATUS_SHARE
        if self._live or not (due or last):
            return
        line = ", ".join([*progress.words(), *progress.other_counts()])
        if line != self._told:
            self._told_at, self._told_share, self._told = now, share, line
            say(line)


class _SafeLive(Live):
    """A live view on a terminal that may be closed meanwhile. The runs go on."""

    def start(self, refresh: bool = False) -> None:
        with contextlib.suppress(OSError):
            super().start(refresh)

    def refresh(self) -> None:
        with contextlib.suppress(OSError):
            super().refresh()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            super().stop()
