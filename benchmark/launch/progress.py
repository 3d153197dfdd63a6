"""What a launch prints: how each run ends, and now and then how far all are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmark.launch.tasks import Listener, Outcome, Task, say
from benchmark.runs.status import RunState

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Snapshot

STATUS_SECONDS = 10.0
"""Least time between two status lines of a local launch."""

SNAPSHOT_SECONDS = 30.0
"""Least time between two lines about a cluster, unless all runs have ended."""


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class ProgressView(Listener):
    """Shows a local launch. Speed is in rounds of this launch; what a resumed run did before does not count."""

    def __init__(self, done_before: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """``done_before``: runs that are done and not launched."""
        self._clock, self._done_before = clock, done_before
        self._began = self._shown_at = clock()
        self._first_task = 0.0
        self._rounds: dict[str, int] = {}
        self._current: dict[str, int | None] = {}  # the round that each run reported last
        self._states: Counter[RunState] = Counter()
        self._left = self._worked = 0

    def started(self, tasks: Sequence[Task]) -> None:
        """Say how much there is to do."""
        self._rounds = {task.key: task.rounds for task in tasks}
        self._left = sum(self._rounds.values())
        self._began = self._shown_at = self._clock()
        before = f", {self._done_before} done before" if self._done_before else ""
        say(f"{self._total} runs{before}, {len(tasks)} to do")

    def task_started(self, key: str) -> None:
        """Add the run. The clock of the speed starts with the first one, after workers have started."""
        self._first_task = self._first_task or self._clock()
        self._current[key] = None

    def progress(self, key: str, done: int) -> None:
        """Note the progress of a run. Its first report says where it begins."""
        before = self._current[key]
        self._left -= done - (before or 0)
        self._worked += 0 if before is None else done - before
        self._current[key] = done
        self._show()

    def task_ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and why if it ended badly."""
        rest = self._rounds[outcome.key] - (self._current.pop(outcome.key) or 0)
        done = outcome.state is RunState.DONE
        # However it ended, none of its rounds is left to wait for.
        self._left -= rest
        self._worked += rest if done else 0
        self._states[outcome.state] += 1
        why = "" if done else f": {outcome.message.strip().partition(chr(10))[0]}"
        say(f"{outcome.state:<11} {outcome.key} ({duration(outcome.seconds)}){why}")
        self._show()

    def stopping(self, message: str) -> None:
        """Say that the launch stops."""
        say(f"stopping on {message}")

    def finished(self) -> None:
        """Sum up: ``72/72 runs in 12 min: 68 done before, 4 done now``."""
        if not self._rounds:
            return
        done = f"{self._states[RunState.DONE]} done"
        counts = [f"{self._done_before} done before", f"{done} now"] if self._done_before else [done]
        counts += self._problems()
        if self._ended < self._total:
            counts.append(f"{self._total - self._ended} not begun")
        say(
            f"{self._ended}/{self._total} runs in {duration(self._clock() - self._began)}: {', '.join(counts)}"
        )

    @property
    def _ended(self) -> int:
        return self._done_before + self._states.total()

    @property
    def _total(self) -> int:
        return self._done_before + len(self._rounds)

    def _problems(self) -> list[str]:
        states = sorted(self._states.items())
        return [f"{count} {state}" for state, count in states if state is not RunState.DONE]

    def _show(self) -> None:
        """``12/72 runs, 31 % of rounds, about 2 min left``, if it is time to."""
        if self._clock() - self._shown_at < STATUS_SECONDS:
            return
        self._shown_at = self._clock()
        rounds = sum(self._rounds.values())
        share = (rounds - self._left) / rounds if rounds else 1.0
        parts = [f"{self._ended}/{self._total} runs", f"{100 * share:.0f} % of rounds"]
        if self._worked:
            seconds = self._left * (self._clock() - self._first_task) / self._worked
            parts.append(f"about {duration(seconds)} left")
        say(", ".join([*parts, *self._problems()]))


class SnapshotView:
    """Shows how far the runs of a cluster are, if something has changed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._shown_at = -SNAPSHOT_SECONDS
        self._ended_before: int | None = None
        self._line = ""

    def show(self, snapshot: Snapshot) -> None:
        """Print a snapshot that is new, if it is time to."""
        if self._ended_before is None:
            self._ended_before = snapshot.ended
        now, line = self._clock(), str(snapshot)
        due = now - self._shown_at >= SNAPSHOT_SECONDS or snapshot.ended == snapshot.total
        if line != self._line and due:
            self._line, self._shown_at = line, now
            say(f"{line}; {self._times(snapshot)}")

    def _times(self, snapshot: Snapshot) -> str:
        """``12 min, about 40 min left``. What is left is not known before a run has ended."""
        spent = self._clock() - self._began
        gained = snapshot.ended - (self._ended_before or 0)
        left = snapshot.total - snapshot.ended
        return duration(spent) + (
            f", about {duration(left * spent / gained)} left" if gained and left else ""
        )
