"""What the runs of a results folder have come to. A command reads each ``status.json`` once."""

import contextlib
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark import digests
from benchmark.engine.records import Record
from benchmark.runs.status import ORIGIN, RunState, Status
from benchmark.runs.store import DamagedError, ResultsFolder
from datasets.core.prepare import current_fingerprint


@dataclass
class RunIndex:
    """Status and state of runs by key, read when first asked for.

    `refresh` forgets what may have changed: every run that has not ended. ``problems``: what is wrong with damaged
    runs, by key.
    """

    results: ResultsFolder
    problems: dict[str, str] = field(default_factory=dict)
    _statuses: dict[str, Status | None] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _prepared: dict[str, str | None] = field(default_factory=dict)
    """Fingerprints of prepared data sets by their folders."""
    _values: dict[Any, Any] = field(default_factory=dict)

    def refresh(self, keys: Collection[str], data: bool = False) -> None:
        """Read again what may have changed of ``keys``. Asks the disk once per configuration which folders exist.

        ``data``: whether data sets may have been prepared meanwhile.
        """
        if data:
            self._prepared.clear()
            self._ended.clear()
        open_ = [key for key in keys if key not in self._ended]
        there = self.results.there(open_)
        for key in open_:
            self._statuses.pop(key, None)
            self.problems.pop(key, None)
            if key not in there:
                self._statuses[key] = None

    def status(self, key: str) -> Status | None:
        """What the run's ``status.json`` says, as far as tables need it; None without one, or if it is damaged."""
        if key not in self._statuses:
            folder = self.results.run(key)
            self._statuses[key] = None
            try:
                status = folder.status()
                if status is not None and status.ended:
                    folder.check_size(status)
                self._statuses[key] = None if status is None else self._slim(status)
            except DamagedError as error:
                self.problems[key] = str(error)
        return self._statuses[key]

    def _slim(self, status: Status) -> Status:
        """The status without what no table needs. Values that many runs have are kept in memory once."""
        same: dict[str, Any] = {
            name: getattr(status, name) for name in (*ORIGIN, "processor", "prepared", "builder")
        }
        for name, value in same.items():
            hashable = tuple(value.items()) if isinstance(value, dict) else value
            same[name] = self._values.setdefault(hashable, value)
        final = {
            sys.intern(split): {sys.intern(metric): value for metric, value in values.items()}
            for split, values in status.final.items()
        }
        return replace(status, files={}, model_sha256="", final=final, **same)

    def records(self, key: str) -> list[Record]:
        """The records of an ended run. A run whose records are damaged is so from now on. Errors as `read_records`."""
        with self._noticing(key):
            return self.results.run(key).read_records(self.status(key))

    def final(self, key: str, split: str, metric: str) -> float | None:
        """A value of an ended run's last evaluation, None if there is none; it is compared with the records.

        Raises:
            DamagedError: The records have another value. The run is damaged from now on.
        """
        status = self.status(key)
        value = status.final.get(split, {}).get(metric) if status is not None else None
        if status is not None and value is not None:
            with self._noticing(key):
                self.results.run(key).require(Record(status.round, split, "all", metric, value))
        return value

    @contextlib.contextmanager
    def _noticing(self, key: str) -> Iterator[None]:
        """Note a run of which something turns out to be damaged inside the ``with``."""
        try:
            yield
        except DamagedError as error:
            self.problems[key] = str(error)
            self._ended.discard(key)
            raise

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
        if key in self._ended or status is None or not status.ended or key in self.problems:
            return key in self._ended
        if not self.why_stale(status):
            self._ended.add(key)
        return key in self._ended

    def why_stale(self, status: Status) -> str:
        """Why an ended run has to be carried out again; empty if it has not."""
        return "" if self.results.stale == "keep" else self._changed(status)

    def differs(self, key: str) -> str:
        """How the code and the data that an ended run used differ from today's; empty if they do not."""
        status = self.status(key)
        if status is None:
            return ""
        engine = "" if status.engine == digests.engine() else "another version of the engine"
        mixed = f"parts with other {status.mixed}" if status.mixed else ""
        return "; ".join(filter(None, [mixed, self._changed(status) or engine]))

    def _changed(self, status: Status) -> str:
        if digests.changed(status.code):
            return "another version of the method"
        return "other data than there are now" if self._has_other_data(status) else ""

    def _has_other_data(self, status: Status) -> bool:
        if status.prepared and status.prepared not in self._prepared:
            self._prepared[status.prepared] = current_fingerprint(Path(status.prepared))
        fingerprint = self._prepared.get(status.prepared)
        return bool(digests.changed(status.builder)) if fingerprint is None else fingerprint != status.data
