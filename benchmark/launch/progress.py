"""How far a launch is: the states of its runs, the share of the work that is done, and the time left."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping

from benchmark.errors import StorageError
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState


def duration(seconds: float) -> str:
    """Format a time in the unit that matters: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def is_over(state: RunState) -> bool:
    """Whether a run has ended, however."""
    return state not in (RunState.RUNNING, RunState.WAITING, RunState.MISSING)


class Progress:
    """States of runs, and how much of the work is left.

    Work is counted in rounds of this launch: what a resumed run did before does not count. A run's folder says in which
    round it is, on this machine and on a cluster.

    Attributes:
        states: Run -> state. Runs that are done or diverged at the beginning are not launched.
        seeds: Run -> seed.
        rounds: Run -> its rounds, of those that are launched.
        waiting_for: What the runs that wait are waiting for, in brackets, or an empty string.
    """

    def __init__(
        self,
        index: RunIndex,
        states: Mapping[str, RunState],
        seeds: Mapping[str, int],
        rounds: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rounds`` are those of all runs."""
        self.index, self.states, self.seeds, self.clock = index, dict(states), seeds, clock
        self.before = Counter(state for state in states.values() if state.ended)
        self.rounds = {key: rounds[key] for key, state in states.items() if not state.ended}
        self.waiting_for = ""
        self.began, self._work_began = clock(), 0.0
        # Rounds that a run had behind it when it was first seen at work, and when it was last seen.
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def note(self, states: Mapping[str, RunState], waiting_for: str = "") -> None:
        """Note the states of runs. The clock of the speed starts with the first that is at work."""
        self.states.update(states)
        self.waiting_for = waiting_for
        for key in (key for key, state in states.items() if state is RunState.RUNNING):
            self._work_began = self._work_began or self.clock()
            status = self.index.status(key)
            self._last[key] = 0 if status is None else status.round
            self._first[key] = min(self._first.get(key, self._last[key]), self._last[key])

    def look(self) -> None:
        """Read again how far the runs at work are."""
        running = {key: state for key, state in self.states.items() if state is RunState.RUNNING}
        with contextlib.suppress(StorageError):  # The run itself reports it.
            self.index.refresh(running)
            self.note(running, self.waiting_for)

    @property
    def _left(self) -> int:
        """Rounds to wait for. A run that has ended has none, however it ended."""
        open_ = [key for key in self.rounds if not is_over(self.states[key])]
        return sum(self.rounds[key] - self._last.get(key, 0) for key in open_)

    @property
    def _worked(self) -> int:
        """Rounds that this launch has carried out."""
        done = [key for key in self.rounds if self.states[key] is RunState.DONE]
        unseen = sum(self.rounds[key] - self._last.get(key, 0) for key in done)
        return unseen + sum(self._last.values()) - sum(self._first.values())

    @property
    def ended(self) -> int:
        """Number of runs that have ended, in whatever state."""
        return sum(map(is_over, self.states.values()))

    def seeds_over(self) -> dict[int, list[bool]]:
        """Seed, in ascending order -> whether each of its runs has ended."""
        over: dict[int, list[bool]] = {seed: [] for seed in sorted(set(self.seeds.values()))}
        for key, seed in self.seeds.items():
            over[seed].append(is_over(self.states[key]))
        return over

    @property
    def share(self) -> float:
        """The share of the work that is done, 0 to 1."""
        total = sum(self.rounds.values())
        return (total - self._left) / total if total else 1.0

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
        parts = [f"{self.ended}/{len(self.states)} runs", f"{100 * self.share:.0f} % of rounds"]
        left, worked = self._left, self._worked
        if worked and left:
            seconds = left * (self.clock() - self._work_began) / worked
            parts.append(f"about {duration(seconds)} left")
        return parts
