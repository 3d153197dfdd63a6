"""A run's folder on disk: configuration, records, checkpoint, status.

``results/runs/<readable name>-<hash>/seed<k>/``

====================  =============================================================================================
``config.yaml``       the complete configuration
``meta.json``         commit, versions, host, device, threads, fingerprint of the data, id of the partition
``code.zip``          the source files of the method, the partition scheme and the data set's builder
``records.jsonl``     one metric value per line, in long form
``status.json``       done | diverged, and digests of all that a table reads; written last
``checkpoint.pt``     the state after some round; deleted when the run has ended
``log.txt``           the log of all processes that worked on the run
``lease.<n>``         the process that works on it (`benchmark.runs.lease`); the highest n counts
``records.<n>.jsonl`` records that process n has written; it becomes ``records.jsonl``
``status.<n>.json``   running | interrupted | failed, by process n
====================  =============================================================================================

Nothing that a process at work writes can therefore replace the result of another one. `RunFolder` reads a folder;
`benchmark.runs.writer.RunWriter` writes it.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from benchmark import digests
from benchmark.config.files import read_yaml
from benchmark.config.schema import FORMAT, RunConfig
from benchmark.engine.records import Record
from benchmark.errors import StorageError, wrong
from benchmark.runs.files import reading, storing, write_with_folder
from benchmark.runs.lease import Busy, Lease, holder_of, take
from benchmark.runs.status import RunState, Status

NOT_EVALUATED = ("train", "cost", "participation")
"""Splits of records that are about a round and not about the model after it."""


CONTENT = frozenset({"runs", "partitions", "tables", "launcher", "report", "published", "tuned", "weights"})
"""Folders by which a results folder is known."""

TAIL = 4096
"""Bytes at the end of the records in which the last evaluation is looked for first."""


class DamagedError(StorageError):
    """A file of a run is not what was written."""


def damaged(path: Path, problem: str) -> DamagedError:
    """The error about a file of a run."""
    return DamagedError(
        f"{path.absolute()}: damaged ({problem}). It is not used; the next launch carries the run out again."
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file. Raises `DamagedError` if the file is something else."""
    try:
        with reading(path):
            content = json.loads(path.read_bytes())
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise
    except ValueError as error:  # no JSON, or no UTF-8
        raise damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise damaged(path, "it is not a JSON object")
    return content


def final_values(records: Iterable[Record], round: int) -> dict[str, dict[str, float]]:
    """The values of an evaluation, {split: {metric: value}} for the whole set."""
    final: dict[str, dict[str, float]] = {}
    for record in records:
        if record.round == round and record.group == "all" and record.split not in NOT_EVALUATED:
            final.setdefault(record.split, {})[record.metric] = record.value
    return final


def record_lines(records: Iterable[Record]) -> bytes:
    """Records as lines of ``records.jsonl``."""
    return "".join(json.dumps(record._asdict()) + "\n" for record in records).encode()


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    def newest(self, kind: str) -> Path | None:
        """The file of the last process among those that match ``kind``, ``status.*.json`` say; None without one."""
        numbered = {path.name.split(".")[1]: path for path in self.path.glob(kind)}
        numbers = [number for number in numbered if number.isdigit()]
        return numbered[max(numbers, key=int)] if numbers else None

    @property
    def result_path(self) -> Path:
        """status.json."""
        return self.path / "status.json"

    @property
    def config_path(self) -> Path:
        """config.yaml."""
        return self.path / "config.yaml"

    @property
    def records_path(self) -> Path:
        """records.jsonl; before the run has ended the file of the last process that worked on it."""
        whole = self.path / "records.jsonl"
        return whole if whole.exists() else self.newest("records.*.jsonl") or whole

    @property
    def checkpoint_path(self) -> Path:
        """checkpoint.pt."""
        return self.path / "checkpoint.pt"

    def status(self) -> Status | None:
        """How far the run is; None if it has not begun. Raises `DamagedError` for anything but what was written."""
        while True:
            result = self._status(self.result_path)
            working = None if result else self.newest("status.*.json")
            if working is None:
                return result
            status = self._status(working)
            if status:  # else its process has ended the run meanwhile, or another one has taken over
                return status

    def _status(self, path: Path) -> Status | None:
        content = read_json(path)
        if content is None:
            return None
        if content.get("format") != FORMAT:
            raise StorageError(
                f"{self.path.absolute()}: got format {content.get('format')!r}; expected {FORMAT}. Set paths.results "
                "to another folder, or delete this one."
            )
        if content.pop("digest", None) != digests.of(content):
            raise damaged(path, "it is not what was written: another digest")
        try:
            status = Status(**content | {"state": RunState(content["state"])})
        except (TypeError, KeyError, ValueError) as error:
            raise damaged(path, str(error)) from error
        self.check_place(path, status.hash, status.seed)
        return status

    def check_place(self, path: Path, hash: str, seed: int) -> None:
        """Raise `DamagedError` if this folder is not the place of that configuration and seed, as after a copy."""
        expected = f"*-{hash}/seed{seed}"
        if (self.path.parent.name.rpartition("-")[2], self.path.name) != (hash, f"seed{seed}"):
            raise damaged(path, f"it belongs into a folder {expected}: copied or renamed")

    def is_held(self) -> bool:
        """Whether a living process holds the lease."""
        return holder_of(self.path) is not None

    def leftovers(self) -> list[Path]:
        """Files of processes that were killed when the run had ended, but before they removed them."""
        if self.is_held():
            return []
        patterns = ["records.*.jsonl", "status.*.json", ".*.tmp"]
        kept = self.read_config().runtime.keep_checkpoint
        return [
            path
            for kind in [*patterns, *([] if kept else ["checkpoint.pt"])]
            for path in self.path.glob(kind)
        ]

    def lease(self) -> Lease:
        """Take the run for this process, in a ``with`` statement. Raises `Busy` if another process has it."""
        return take(self.path, f"run {self.path.parent.name}/{self.path.name}")

    # Records ---------------------------------------------------------------------------------------------------

    def records_size(self) -> int:
        """Size of the records in bytes."""
        try:
            return self.records_path.stat().st_size
        except FileNotFoundError:
            return 0

    def check_size(self, status: Status) -> None:
        """Raise `DamagedError` if the records of an ended run have another size than was written."""
        if self.records_size() != status.records_bytes:
            problem = f"{self.records_size()} bytes; expected {status.records_bytes}"
            raise damaged(self.records_path, problem)

    def require(self, record: Record) -> None:
        """Raise `DamagedError` if an ended run does not have this record, one of its last."""
        line = record_lines([record])
        with reading(self.records_path), self.records_path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL))
            if line not in stream.read():
                stream.seek(0)
                if line not in stream.read():
                    raise damaged(self.result_path, f"its {record.metric} is not in the records")

    def read_records(self, status: Status | None = None) -> list[Record]:
        """The records of an ended run, whose ``status`` may be known. `StorageError` unless complete and unchanged."""
        status = status or self.status()
        if status is None or not status.ended:
            raise StorageError(f"{self.path.absolute()}: the run has not ended; its records are incomplete.")
        content = b""
        if self.records_path.exists():
            with reading(self.records_path):
                content = self.records_path.read_bytes()
        written = status.records_bytes, status.records_sha256
        if (len(content), hashlib.sha256(content).hexdigest()) != written:
            problem = f"{len(content)} bytes; expected {status.records_bytes} bytes with another digest"
            raise damaged(self.records_path, problem)
        # One array is parsed twice as fast as its lines one by one.
        lines = b",".join(content.splitlines())
        records = [Record(**record) for record in json.loads(b"[" + lines + b"]")]
        if status.state is RunState.DONE and final_values(records, status.round) != status.final:
            raise damaged(self.result_path, "its final values are not those of the last records")
        return records

    # Configuration and meta ------------------------------------------------------------------------------------

    def read_config(self) -> RunConfig:
        """What config.yaml says. Raises `DamagedError` unless its hash and seed are those of the folder's name."""
        path = self.config_path
        try:
            plain = read_yaml(path, "configuration")
            stated = plain.pop("hash")
            config = RunConfig.model_validate(plain)
        except StorageError:
            raise
        except (KeyError, ValueError) as error:
            raise damaged(path, str(error).partition("\n")[0]) from error
        if config.hash != stated:
            raise damaged(path, f"its hash is {config.hash}; expected {stated}")
        self.check_place(path, config.hash, config.seed)
        return config

    def verify(self) -> Status | None:
        """Compare every file of the run with what was written. Raises `StorageError` for the first that differs."""
        status = self.status()
        if status is None or not status.ended:
            return status
        self.read_records(status)
        for name, expected in status.files.items():
            with reading(self.path / name):
                digest = digests.of_file(self.path / name)
            if digest != expected:
                raise damaged(self.path / name, "another digest")
        return status


@dataclass(frozen=True)
class ResultsFolder:
    """A results folder: ``runs/``, ``partitions/``, ``tables/``, and ``launcher/`` with a launcher's lease.

    ``stale``: what becomes of a run whose method's code or data have changed since, or that was interrupted and whose
    engine, torch, threads or device are others now.
    """

    root: Path
    stale: Literal["rerun", "keep"] = "rerun"

    def open(self) -> "ResultsFolder":
        """Create the folder, or check its format. Raises `StorageError` if one of the two fails."""
        marker = self.root / "runs" / "FORMAT"
        with storing(self.root):
            if not marker.exists():
                write_with_folder(marker, f"{FORMAT}\n".encode())
            format = marker.read_bytes().decode(errors="replace").strip()
        if format != str(FORMAT):
            raise StorageError(
                f"{self.root.absolute()}: got results of format {format!r}; expected {FORMAT}. "
                "Set paths.results to another folder (RESULTS=... for make)."
            )
        return self

    def existing(self) -> "ResultsFolder":
        """As `open`, but for reading: a folder without runs stays as it is. `StorageError` if it has other content."""
        if (self.root / "runs").exists():
            return self.open()
        with reading(self.root):
            there = os.listdir(self.root) if self.root.exists() else []
        if there and not CONTENT.intersection(there):
            raise StorageError(wrong("results", str(self.root), f"a results folder; it has {there[0]!r}"))
        return self

    def run(self, key: str) -> RunFolder:
        """The folder of the run ``<name>/seed<k>``."""
        return RunFolder(self.root / "runs" / key)

    def set_aside(self, key: str) -> Path:
        """Move the folder of a run out of ``runs/``, so that it is carried out again; where it is now."""
        now = f"{datetime.now():%Y%m%d-%H%M%S.%f}"
        second, microsecond = (self.root / "set_aside" / moment / key for moment in (now[:15], now))
        place = microsecond if second.exists() else second
        with storing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            self.run(key).path.replace(place)
        return place

    def run_keys(self) -> list[str]:
        """Every run that has a folder."""
        return sorted("/".join(path.parts[-2:]) for path in (self.root / "runs").glob("*/seed*"))

    def there(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that have a folder. Lists the folder of each configuration once, not once for each seed."""
        there: set[str] = set()
        for name in {key.partition("/")[0] for key in keys}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                there.update(f"{name}/{seed}" for seed in os.listdir(self.root / "runs" / name))
        return there.intersection(keys)

    def submission_lease(self) -> Lease:
        """Take the right to submit jobs, in a ``with`` statement. Waits while another process has it."""
        while True:
            try:
                return take(self.root / "launcher" / "submission", f"results folder {self.root.absolute()}")
            except Busy:
                time.sleep(0.5)

    def launcher_lease(self) -> Lease:
        """Take the results folder for one launcher, in a ``with`` statement. Raises `Busy` if another one has it."""
        return take(self.root / "launcher", f"results folder {self.root.absolute()}")
