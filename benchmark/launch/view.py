"""What is shown of a launch: one live view on a terminal, a line now and then elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.live import Live

from benchmark.launch.drawing import Drawing, Grid
from benchmark.launch.progress import Progress, duration
from benchmark.launch.tasks import Listener, Outcome, Task, say
from benchmark.runs.status import RunState

STATUS_SECONDS, STATUS_SHARE = 10.0, 0.05
"""Least time, and least share of the work, between two status lines. Both must have passed."""

FRAMES_PER_SECOND = 1.0
"""How often the live view is drawn. With 780 runs one takes 10 to 20 ms."""

LOOK_SECONDS = 1.0
"""Time between two looks into the folders of the runs at work."""


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
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Take what is to be shown.

        Args:
            progress: How far the runs are.
            console: Of the standard output.
            grids: The tables that the runs belong to.
            verbose: Print a line for every run that has ended, not only if it ended badly.
            seed_ended: Called with a seed when all its runs have ended and runs of other seeds have not.
            names: What lines about runs call them, if not by their keys.
        """
        self._progress, self._verbose, self._seed_ended = progress, verbose, seed_ended
        self._names = names or {}
        self._looked_at = 0.0
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

    def __enter__(self) -> "ProgressView":
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do."""
        done = self._progress.before.total()
        before = f", {done} done before" if done else ""
        say(f"{len(self._progress.states)} runs{before}, {len(tasks)} to do")
        self._told_at, self._told_share = self._progress.clock(), 0.0

    def task_started(self, key: str) -> None:
        """Note it."""
        self._progress.note({key: RunState.RUNNING})

    def look(self) -> None:
        """Read now and then how far the runs at work are."""
        if self._progress.clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._progress.clock()
            self._progress.look()
            self._tell()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and why if it ended badly."""
        done, stopped = outcome.state is RunState.DONE, outcome.state is RunState.INTERRUPTED
        self._progress.note({outcome.key: outcome.state})
        if self._verbose or not (done or stopped):
            why = "" if done else f": {outcome.message.strip().partition(chr(10))[0]}"
            name = self._names.get(outcome.key, outcome.key)
            say(f"{outcome.state:<11} {name} ({duration(outcome.seconds)}){why}")
        seed, over = self._progress.seeds[outcome.key], self._progress.seeds_over()
        if self._seed_ended and not stopped and all(over[seed]) and not all(map(all, over.values())):
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
        before, total, ended = progress.before.total(), len(progress.states), progress.ended
        done = f"{progress.counts[RunState.DONE] - progress.before[RunState.DONE]} done"
        counts = [f"{before} done before", f"{done} now"] if before else [done]
        counts += progress.other_counts()
        if ended < total:
            counts.append(f"{total - ended} not begun")
        say(f"{ended}/{total} runs in {duration(progress.clock() - progress.began)}: {', '.join(counts)}")

    def show(self, states: Mapping[str, RunState], waiting_for: str) -> None:
        """Show the runs of a cluster, and what those that wait are waiting for."""
        self._progress.note(states, waiting_for)
        self._tell(last=self._progress.ended == len(self._progress.states))

    def _tell(self, last: bool = False) -> None:
        """Print a status line if it is new and time to, unless there is the live view."""
        progress = self._progress
        now = progress.clock()
        if self._live or not (last or now - self._told_at >= STATUS_SECONDS):
            return
        share, line = progress.share, ", ".join([*progress.words(), *progress.other_counts()])
        if line != self._told and (last or round(share - self._told_share, 6) >= STATUS_SHARE):
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
