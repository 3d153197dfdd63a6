"""What the runs of a results folder have come to. A command reads each ``status.json`` once."""

from collections.abc import Collection
from dataclasses import dataclass, field

from benchmark.runs import code
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import DamagedError, Results


@dataclass
class RunIndex:
    """Status and state of runs by key, read when first asked for.

    `refresh` forgets what may have changed: every run that has not ended. ``problems``: what is wrong with damaged
    runs, by key.
    """

    results: Results
    problems: dict[str, str] = field(default_factory=dict)
    _statuses: dict[str, Status | None] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def refresh(self, keys: Collection[str]) -> None:
        """Read again what may have changed of ``keys``. Asks the disk once per configuration which folders exist."""
        open_ = [key for key in keys if key not in self._ended]
        there = self.results.there(open_)
        for key in open_:
            self._statuses.pop(key, None)
            self.problems.pop(key, None)
            if key not in there:
                self._statuses[key] = None

    def status(self, key: str) -> Status | None:
        """What the run's ``status.json`` says; None without one, or if it is damaged."""
        if key not in self._statuses:
            folder = self.results.run(key)
            self._statuses[key] = None
            try:
                status = folder.status()
                if status is not None and status.ended:
                    folder.check_size(status)
                self._statuses[key] = status
            except DamagedError as error:
                self.problems[key] = str(error)
        return self._statuses[key]

    def state(self, key: str) -> RunState:
        """The state of the run as a table shows it.

        An interrupted run, and one whose process was killed, is missing: the next launch continues it. `WAITING` is
        known to the launcher alone.
        """
        status = self.status(key)
        if key in self.problems:
            return RunState.DAMAGED
        if status is None or status.state is RunState.INTERRUPTED:
            return RunState.MISSING
        if status.state is RunState.RUNNING and not self.results.run(key).is_held():
            return RunState.MISSING
        if status.ended and not self.has_ended(key):
            return RunState.STALE
        return status.state

    def has_ended(self, key: str) -> bool:
        """Whether the run is done or diverged and neither damaged nor stale. Otherwise it is carried out again."""
        status = self.status(key)
        if status is not None and status.ended and not self._is_stale(status):
            self._ended.add(key)
        return key in self._ended

    def other_code(self, key: str) -> str:
        """How the code that an ended run executed differs from today's; empty if it does not."""
        status = self.status(key)
        if status is None or not status.engine:
            return "code that an earlier version did not record"
        if code.changed(status):
            return "another version of the method"
        return "" if status.engine == code.engine() else "another version of the engine"

    def _is_stale(self, status: Status) -> bool:
        return self.results.stale == "rerun" and bool(code.changed(status))
