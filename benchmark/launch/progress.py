"""How far a launch is, read from the folders of its runs: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError, printable
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

LINE_SECONDS, LINE_SHARE = 10.0, 0.05
"""Least time, and least share of the work, between two lines. Both must have passed."""

LOOK_SECONDS = 1.0
"""Time between two looks into the folders of the runs."""


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def say(line: str) -> None:
    """Print a line about how far runs are. They go on if it cannot be printed; the end of the command says so."""
    with contextlib.suppress(OSError):
        print(printable(line), flush=True)


class Following:
    """Follows the runs of a launch. A context: inside, on a terminal, the bar is shown below whatever is printed.

    Attributes:
        open: The runs that were neither finished nor given up when last looked.
        launch: Name of the launch.
        failed: Run -> why this launch has given it up.
        done: Runs that have been finished since the beginning.
    """

    def __init__(
        self,
        index: RunIndex,
        runs: Mapping[str, RunConfig],
        console: Console,
        *,
        verbose: bool = False,
        seed_ended: Callable[[int], None] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Take what is to be shown.

        Args:
            index: Of the results folder.
            runs: All runs, those that are finished too.
            console: Of the standard output.
            verbose: Print a line for every run that has ended, not only if it ended badly.
            seed_ended: Called with a seed when all its runs have ended and runs of other seeds have not.
            names: What lines about runs call them, if not by their keys.
        """
        self.index = index
        self.launch = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        self.open = {key: run for key, run in runs.items() if not index.has_ended(key)}
        self.failed: dict[str, str] = {}
        self.done: list[str] = []
        self._total, self._before = len(runs), len(runs) - len(self.open)
        self._verbose, self._seed_ended, self._names = verbose, seed_ended, names or {}
        self._began, self._looked, self._told, self._told_share = time.monotonic(), 0.0, time.monotonic(), 0.0
        self._first: tuple[float, float] | None = None
        self._work = sum(run.train.rounds for run in self.open.values())
        self._bar = None
        if sys.stdout.isatty() and console.is_interactive:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
            self._bar = Bar(*columns, console=console, transient=True, refresh_per_second=1)
            self._task = self._bar.add_task("runs", total=self._work, words="")

    def __enter__(self) -> "Following":
        before = f", {self._before} done before" if self._before else ""
        say(f"{self._total} runs{before}, {len(self.open)} to do")
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()
        counts = [f"{len(self.done)} done", *self._counts()]
        if self.open:
            counts.append(f"{len(self.open)} not ended")
        before = f"{self._before} done before, " if self._before else ""
        ended = self._total - len(self.open)
        say(
            f"{ended}/{self._total} runs in {duration(time.monotonic() - self._began)}: {before}{', '.join(counts)}"
        )

    def look(self, at_once: bool = False) -> None:
        """Read what has become of the open runs, at most once a second unless ``at_once``."""
        now = time.monotonic()
        if not at_once and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            finished = self.index.results.finished(self.open)
            for key, run in list(self.open.items()):
                failure = "" if key in finished else self.index.results.run(key).failure(self.launch)
                if key in finished or failure:
                    del self.open[key]
                    self._ended(key, run, failure)
        except StorageError as error:
            say(f"warning: {error}")
        self._show(now)

    def _ended(self, key: str, run: RunConfig, failure: str) -> None:
        name = self._names.get(key, key)
        self.index.refresh([key])
        result = self.index.result(key)
        if not failure and (result is None or not self.index.has_ended(key)):
            why = self.index.why(key)
            failure = f"another command has carried it out in another way ({why}). Give the command again"
        if failure or result is None:
            reason = failure.partition("\n")[0]
            told = reason in {other.partition("\n")[0] for other in self.failed.values()}
            self.failed[key] = failure
            say(f"failed      {name}: {'for the same reason' if told else reason}")
        else:
            self.done.append(key)
            if self._verbose or result.state is not RunState.DONE:
                why = f": {result.message}" if result.message else ""
                say(f"{result.state:<11} {name} ({duration(result.seconds)}){why}")
        left = {other.seed for other in self.open.values()}
        if self._seed_ended and run.seed not in left and left:
            self._seed_ended(run.seed)

    def _counts(self) -> list[str]:
        diverged = sum(self.index.state(key) is RunState.DIVERGED for key in self.done)
        counts = {"diverged": diverged, "failed": len(self.failed)}
        return [f"{number} {state}" for state, number in counts.items() if number]

    def _show(self, now: float) -> None:
        at_work = {entry.replace("/.", "/").rpartition("-")[0] for entry in self.begun}
        rounds = sum(self.index.results.run(key).rounds() for key in at_work.intersection(self.open))
        left = sum(run.train.rounds for run in self.open.values()) - rounds
        share = 1 - max(left, 0) / max(self._work, 1)
        words = [
            f"{self._total - len(self.open)}/{self._total} runs",
            f"{100 * share:.0f} % of rounds",
            *self._counts(),
        ]
        if share > 0 and self._first is None:  # the speed counts from here: workers have started by now
            self._first = now, share
        if self._first and self._first[1] < share < 1:
            began, before = self._first
            words.append(f"about {duration((now - began) * (1 - share) / (share - before))} left")
        if self._bar:
            self._bar.update(self._task, completed=share * self._work, words=", ".join(words))
        elif now - self._told >= LINE_SECONDS and share - self._told_share >= LINE_SHARE:
            self._told, self._told_share = now, share
            say(", ".join(words))

    @property
    def begun(self) -> set[str]:
        """The open runs that somebody has begun, one entry for each attempt: ``NAME/.seed3-ID``."""
        names = self.index.results.names(self.open)
        attempts = ((name, entry) for name, there in names.items() for entry in there if "-" in entry)
        return {f"{name}/{entry}" for name, entry in attempts if ".old-" not in entry}
