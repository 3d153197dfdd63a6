"""How far a launch is: the states of its runs, the share of the work that is done, and the time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from benchmark.launch.tasks import Task
from benchmark.runs.status import RunState

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Snapshot


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Progress:
    """States of runs, and how much of the work is left.

    Work is counted in rounds of this launch: what a resumed run did before does not count. The rounds of runs on a
    cluster are not known here, so whole runs are counted.

    Attributes:
        states: Run -> state. Runs that are done or diverged at the beginning are not launched.
        seeds: Run -> seed.
        ended: Number of runs that have ended, in whatever state.
        waiting_for: What the runs that wait are waiting for, in brackets, or an empty string.
    """

    def __init__(
        self,
        states: Mapping[str, RunState],
        seeds: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.states, self.seeds, self.clock = dict(states), seeds, clock
        self.before = Counter(state for state in states.values() if state.ended)
        self.ended = self.ended_before = self.before.total()
        self.waiting_for = ""
        self.rounds: dict[str, int] = {}
        self.began = self._work_began = clock()
        self._work = self._left = len(states) - self.ended
        self._worked = 0
        self._current: dict[str, int | None] = {}  # the round that each run reported last

    def begin(self, tasks: Sequence[Task]) -> None:
        """Note the rounds of the runs that are launched."""
        self.rounds = {task.key: task.rounds for task in tasks}
        self._work = self._left = sum(self.rounds.values())
        self._work_began = 0.0

    def start(self, key: str) -> None:
        """A run begins. The clock of the speed starts with the first one, after workers have started."""
        self._work_began = self._work_began or self.clock()
        self.states[key], self._current[key] = RunState.RUNNING, None

    def advance(self, key: str, done: int) -> None:
        """Note the progress of a run. Its first report says where it begins."""
        before = self._current[key]
        self._left -= done - (before or 0)
        self._worked += 0 if before is None else done - before
        self._current[key] = done

    def end(self, key: str, state: RunState) -> None:
        """A run has ended. However it ended, none of its rounds is left to wait for."""
        rest = self.rounds[key] - (self._current.pop(key) or 0)
        self._left -= rest
        self._worked += rest if state is RunState.DONE else 0
        self.states[key] = state
        self.ended += 1

    def take(self, snapshot: Snapshot) -> None:
        """Note the states of the runs of a cluster."""
        self.states.update(snapshot.states)
        self.waiting_for = snapshot.waiting_for
        self.ended = sum(state.ended for state in self.states.values())
        self._left, self._worked = len(self.states) - self.ended, self.ended - self.ended_before

    @property
    def share(self) -> float:
        """The share of the work that is done, 0 to 1."""
        return (self._work - self._left) / self._work if self._work else 1.0

    @property
    def counts(self) -> Counter[RunState]:
        """Number of runs by state."""
        return Counter(self.states.values())

    def other_counts(self) -> list[str]:
        """Runs that are neither done nor missing: ``2 running``, ``1 failed``; diverged ones of this launch only."""
        counts = self.counts - self.before
        shown = [state for state in RunState if state not in (RunState.DONE, RunState.MISSING)]
        return [f"{counts[state]} {self.name_of(state)}" for state in shown if counts[state]]

    def name_of(self, state: RunState) -> str:
        """``waiting (Priority)``: the word for a state, with what the runs that wait are waiting for."""
        return f"{state}{self.waiting_for if state is RunState.WAITING else ''}"

    def words(self) -> list[str]:
        """``12/72 runs``, ``31 % of rounds``, ``about 2 min left``. What is left is not known before there is work."""
        parts = [f"{self.ended}/{len(self.states)} runs"]
        if self.rounds:
            parts.append(f"{100 * self.share:.0f} % of rounds")
        if self._worked and self._left:
            seconds = self._left * (self.clock() - self._work_began) / self._worked
            parts.append(f"about {duration(seconds)} left")
        return parts
