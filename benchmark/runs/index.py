"""What the runs of a results folder have come to. A command reads each ``result.json`` once."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark import code
from benchmark.engine.records import Record
from benchmark.errors import UserError
from benchmark.runs.compare import CURRENT, difference
from benchmark.runs.folder import ResultsFolder, RunFolder
from benchmark.runs.result_files import DamagedError, read_records
from benchmark.runs.status import Result, RunState
from datasets.core.prepare import current_fingerprint, locate


@dataclass
class RunIndex:
    """Result and state of runs by key, read when first asked for.

    `refresh` forgets what may have changed: every run that is not finished. ``problems``: what is wrong with damaged
    runs, by key. ``code``: the snapshot by which this command carries runs out; what it makes is current, whatever is
    edited meanwhile.
    """

    results: ResultsFolder
    code: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    _results: dict[str, Result | None] = field(default_factory=dict)
    _by: dict[str, str] = field(default_factory=dict)
    _now: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the own code and the data of finished runs are now, by what they were."""

    def refresh(self, keys: Collection[str], data: bool = False) -> None:
        """Read again what may have changed of ``keys``; ``data``: data sets may have been prepared meanwhile."""
        if data:
            self._now.clear()
        self.forget([key for key in keys if self._results.get(key) is None])

    def forget(self, keys: Collection[str]) -> None:
        """Read everything about ``keys`` again."""
        for key in keys:
            self._results.pop(key, None)
            self.problems.pop(key, None)

    def folder(self, key: str) -> RunFolder:
        """The run that counts: the one that was carried out here or, if none is finished, one that was imported."""
        own = self.results.run(key)
        return own if own.is_finished else self.results.imported(key).get(key, own)

    def keys(self) -> list[str]:
        """Every run that is finished or has been begun here, or was imported."""
        return sorted({*self.results.run_keys(), *self.results.imported()})

    def result(self, key: str) -> Result | None:
        """What the finished run says, as far as tables need it; None without one, or if it is damaged."""
        if key not in self._results:
            self._results[key] = None
            try:
                folder = self.folder(key)
                self._by[key] = folder.by
                result = folder.result()
                if result is not None:  # tables of thousands of runs do not need the samples of each client
                    made = {k: v for k, v in result.made.items() if k != "clients"}
                    self._results[key] = replace(result, made=made)
            except DamagedError as error:
                self.problems[key] = str(error)
        return self._results[key]

    def by(self, key: str) -> str:
        """Who ran the run, if it was imported; else empty."""
        self.result(key)
        return self._by[key]

    def records(self, key: str) -> list[Record]:
        """The records of a finished run. `DamagedError` if they are not what was written: the run is so from now on."""
        result = self.result(key)
        if result is None:
            raise DamagedError(self.problems.get(key, f"{self.folder(key).path}: the run is not finished."))
        try:
            return read_records(self.folder(key).path, result)
        except DamagedError as error:
            self.problems[key], self._results[key] = str(error), None
            raise

    def final(self, key: str, split: str, metric: str) -> float | None:
        """A value of a finished run's last evaluation; None if there is none."""
        result = self.result(key)
        return None if result is None else result.final.get(split, {}).get(metric)

    def state(self, key: str) -> RunState:
        """The state of the run as a table shows it. A stopped run is missing: the next launch continues it."""
        result = self.result(key)
        if result is not None:
            return result.state if self.has_ended(key) else RunState.DIFFERS
        if key in self.problems:
            return RunState.DIFFERS
        folder = self.results.run(key)
        if not folder.path.parent.is_dir():
            return RunState.MISSING
        if folder.is_held:
            return RunState.RUNNING
        return RunState.FAILED if folder.last_failure() else RunState.MISSING

    def has_ended(self, key: str) -> bool:
        """Whether the run is finished and current, or imported. Otherwise it is carried out again."""
        return self.result(key) is not None and not self.why(key)

    def differs(self, key: str) -> str:
        """How a finished run was made in another way than it would be now, or in parts; empty if it was not."""
        result = self.result(key)
        if result is None:
            return ""
        parts = f"parts with other {result.parts}" if result.parts else ""
        engine = "" if result.origin["engine"] == code.engine_digest() else "the engine"
        return "; ".join(filter(None, [parts, self._other(key, result) or engine]))

    def why(self, key: str) -> str:
        """Why a finished run is carried out again; empty if it is not. One that was imported never is."""
        result = self.result(key)
        if result is None:
            return self.problems.get(key, "")
        return "" if self.results.stale == "keep" or self.by(key) else self._other(key, result)

    def _other(self, key: str, result: Result) -> str:
        """What of a run's own code and data has changed since."""
        made = f"{result.made['prepared']} {self.by(key)} {sorted(result.origin['code'])}"
        if made not in self._now:
            fingerprint = current_fingerprint(self._prepared(key, result))
            data = {} if fingerprint is None else {"data": fingerprint}
            # An edit since the launch changes nothing for it.
            place = self.results.root / "code" / self.code if self.code else None
            own = {name: code.file_digest(name, place) for name in result.origin["code"]}
            self._now[made] = {"code": own, **data}
        return difference(result.origin, self._now[made], CURRENT)

    def _prepared(self, key: str, result: Result) -> Path:
        """The folder of a run's prepared data. An imported run names one of another machine."""
        with contextlib.suppress(UserError):  # a data set of a repository that is not here
            if self.by(key):
                dataset = self.folder(key).read_config().dataset
                return locate(dataset.name, dataset.options).folder
        return Path(result.made["prepared"])
