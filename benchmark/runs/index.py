"""What the runs of a results folder have come to. A command reads each ``status.json`` once."""

from collections.abc import Collection
from dataclasses import dataclass, field

from benchmark.errors import StorageError
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results


@dataclass
class RunIndex:
    """Status and state of runs by key, read when first asked for.

    `refresh` forgets what may have changed: every run that has not ended.
    """

    results: Results
    _statuses: dict[str, Status | None] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def refresh(self, keys: Collection[str]) -> None:
        """Read again what may have changed of ``keys``. Asks the disk once per configuration which folders exist."""
        open_ = [key for key in keys if key not in self._ended]
        there = self.results.there(open_)
        for key in open_:
            self._statuses.pop(key, None)
            if key not in there:
                self._statuses[key] = None

    def status(self, key: str) -> Status | None:
        """What the run's ``status.json`` says; None without one. Raises `StorageError` for a damaged file."""
        if key not in self._statuses:
            self._statuses[key] = self.results.run(key).status()
        return self._statuses[key]

    def state(self, key: str) -> RunState:
        """The state of the run as a table shows it.

        An interrupted run, and one whose process was killed, is missing: the next launch continues it. `WAITING` is
        known to the launcher alone. Raises `StorageError` if the records of an ended run have another size than was
        written.
        """
        status, folder = self.status(key), self.results.run(key)
        if status is None or status.state is RunState.INTERRUPTED:
            return RunState.MISSING
        if status.state is RunState.RUNNING and not folder.is_held():
            return RunState.MISSING
        if status.ended and not self.has_ended(key):
            raise StorageError(
                f"{folder.records_path.absolute()}: got a file of another size; expected {status.records_bytes} bytes. "
                f"Delete {folder.path} to run it again."
            )
        return status.state

    def has_ended(self, key: str) -> bool:
        """Whether the run is done or diverged, and its records are complete. Otherwise it is carried out again."""
        status = self.status(key)
        if key not in self._ended and status is not None and self.results.run(key).complete(status):
            self._ended.add(key)
        return key in self._ended
