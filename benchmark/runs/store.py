"""A run's folder on disk: configuration, records, checkpoint, status.

``results/runs/<readable name>-<hash>/seed<k>/``

==================  ===============================================================================================
``config.yaml``     the complete configuration
``meta.json``       commit, versions, host, device, threads, fingerprint of the data, id of the partition
``records.jsonl``   one metric value per line, in long form; valid up to the size in the status or the checkpoint
``checkpoint.pt``   the state after some round; replaced atomically, deleted when the run has ended
``status.json``     running | interrupted | done | diverged | failed; ``done`` is written last and atomically
``log.txt``         the log of all processes that worked on the run
``lease.<n>``       the process that works on it (`benchmark.runs.lease`); the highest n counts
==================  ===============================================================================================
"""

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from benchmark.config.files import read_yaml
from benchmark.config.schema import FORMAT, RunConfig
from benchmark.engine.records import Record
from benchmark.errors import ConfigError, StorageError
from benchmark.runs.files import storing, write_atomically
from benchmark.runs.lease import Busy, Lease, holder_of, take
from benchmark.runs.status import RunState, Status


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file. Raises `StorageError` if the file is something else."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path.absolute()}: cannot be read ({error.strerror}).") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    return content


def _damaged(path: Path, problem: str) -> StorageError:
    return StorageError(f"{path.absolute()}: damaged ({problem}). Delete {path.parent} to run it again.")


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def records_path(self) -> Path:
        """records.jsonl."""
        return self.path / "records.jsonl"

    @property
    def checkpoint_path(self) -> Path:
        """checkpoint.pt."""
        return self.path / "checkpoint.pt"

    def status(self) -> Status | None:
        """What status.json says; None if there is none. Raises `StorageError` for a damaged file or another format."""
        path = self.path / "status.json"
        content = read_json(path)
        if content is None:
            return None
        if content.get("format") != FORMAT:
            raise StorageError(
                f"{self.path.absolute()}: got format {content.get('format')!r}; expected {FORMAT}. Set paths.results "
                "to another folder, or delete this one."
            )
        try:
            return Status(**content | {"state": RunState(content["state"])})
        except (TypeError, KeyError, ValueError) as error:
            raise _damaged(path, str(error)) from error

    def write_status(self, status: Status, durable: bool = False) -> None:
        """Replace the status atomically."""
        stamped = asdict(status) | {"updated": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
        write_atomically(self.path / "status.json", json.dumps(stamped, indent=1).encode(), durable)

    def lease(self) -> Lease:
        """Take the run for this process, in a ``with`` statement. Raises `Busy` if another process has it."""
        return take(self.path, f"run {self.path.parent.name}/{self.path.name}")

    def is_held(self) -> bool:
        """Whether a living process holds the lease."""
        return holder_of(self.path) is not None

    def write_config(self, config: RunConfig) -> None:
        """Write config.yaml. Raises `StorageError` if the folder belongs to another configuration."""
        path = self.path / "config.yaml"
        if not path.exists():
            plain = {"hash": config.hash, **config.model_dump(mode="json")}
            write_atomically(path, yaml.safe_dump(plain, sort_keys=False).encode())
            return
        try:
            old = read_yaml(path, "configuration")
        except ConfigError as error:
            raise _damaged(path, "it is not a YAML mapping") from error
        if old.get("hash") != config.hash:
            raise StorageError(
                f"{path.absolute()}: got configuration {old.get('hash')!r}; expected {config.hash!r}. Move the folder "
                "away, or set paths.results to another one."
            )

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Write meta.json."""
        write_atomically(self.path / "meta.json", json.dumps(meta, indent=1).encode(), durable=False)

    # Records ---------------------------------------------------------------------------------------------------

    def records_size(self) -> int:
        """Size of the records in bytes."""
        try:
            return self.records_path.stat().st_size
        except FileNotFoundError:
            return 0

    def last_round(self) -> int:
        """The round of the last record, to show the progress of a run; 0 if there is none."""
        try:
            with self.records_path.open("rb") as stream:
                stream.seek(max(0, self.records_size() - 4096))
                lines = stream.read().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):  # the last one may be incomplete
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["round"])
        return 0

    def truncate_records(self, size: int) -> None:
        """Remove what a killed process wrote after its last checkpoint."""
        with self.records_path.open("ab") as stream:
            stream.truncate(size)

    def append_records(self, records: Sequence[Record]) -> int:
        """Append lines and return the new size in bytes."""
        if not records:
            return self.records_size()
        lines = "".join(json.dumps(r._asdict()) + "\n" for r in records)
        with storing(self.records_path), self.records_path.open("ab") as stream:
            stream.write(lines.encode())
            stream.flush()
            return stream.tell()

    def complete(self, status: Status) -> bool:
        """Whether the run has ended and its records have the right size. Fast, for thousands of runs."""
        return status.ended and self.records_size() == status.records_bytes

    def records_digest(self) -> tuple[int, str]:
        """(size in bytes, SHA-256) of the records."""
        content = self._records()
        return len(content), hashlib.sha256(content).hexdigest()

    def read_records(self) -> list[Record]:
        """The records of an ended run. Raises `StorageError` unless they are complete and unchanged."""
        status = self.status()
        if status is None or not status.ended:
            raise StorageError(
                f"{self.path.absolute()}: the run has not ended, so its records are incomplete."
            )
        size, digest = self.records_digest()
        if (size, digest) != (status.records_bytes, status.records_sha256):
            problem = f"{size} bytes; expected {status.records_bytes} bytes with another digest"
            raise _damaged(self.records_path, problem)
        return [Record(**json.loads(line)) for line in self._records().splitlines()]

    def _records(self) -> bytes:
        return self.records_path.read_bytes() if self.records_path.exists() else b""

    # Checkpoint ------------------------------------------------------------------------------------------------

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Replace the checkpoint atomically. Raises `StorageError` if the disk is full; the old one then stays."""
        import torch

        def write(stream: IO[bytes]) -> None:
            # The records that the checkpoint counts reach the disk before it.
            with contextlib.suppress(FileNotFoundError), self.records_path.open("rb") as records:
                os.fsync(records.fileno())
            torch.save(content, stream)

        write_atomically(self.checkpoint_path, write)

    def load_checkpoint(self, config: RunConfig, device: Any = "cpu") -> dict[str, Any] | None:
        """The checkpoint on ``device``; None without one. `StorageError` for a damaged or another configuration's."""
        import torch

        path = self.checkpoint_path
        if not path.exists():
            return None
        remedy = "Delete it; the run then starts again."
        try:
            content = torch.load(path, map_location=device, weights_only=True)
            found = content.get("hash"), content.get("seed")
        except Exception as error:  # torch raises many kinds of errors for a file that is not its own
            raise StorageError(f"{path.absolute()}: damaged ({type(error).__name__}). {remedy}") from error
        if found != (config.hash, config.seed):
            raise StorageError(
                f"{path.absolute()}: got configuration {found[0]!r}, seed {found[1]}; expected {config.hash!r}, "
                f"seed {config.seed}. {remedy}"
            )
        return content

    def clean(self, keep_checkpoint: bool) -> None:
        """Remove temporary files that killed processes left, and the checkpoint of an ended run."""
        for leftover in self.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        if not keep_checkpoint:
            self.checkpoint_path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Results:
    """A results folder: ``runs/``, ``partitions/``, ``tables/``, and ``launcher/`` with a launcher's lease."""

    root: Path

    def open(self) -> "Results":
        """Create the folder, or check its format. Raises `StorageError` if one of the two fails."""
        marker = self.root / "runs" / "FORMAT"
        with storing(self.root):
            if not marker.exists():
                marker.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(marker, f"{FORMAT}\n".encode())
            found = marker.read_text().strip()
        if found != str(FORMAT):
            raise StorageError(
                f"{self.root.absolute()}: got results of format {found!r}; expected {FORMAT}. "
                "Set paths.results to another folder (RESULTS=... for make)."
            )
        return self

    def existing(self) -> "Results":
        """As `open`, but for reading: a folder without runs stays as it is."""
        return self.open() if (self.root / "runs").exists() else self

    def run(self, key: str) -> RunFolder:
        """The folder of the run ``<name>/seed<k>``."""
        return RunFolder(self.root / "runs" / key)

    def there(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that have a folder. Lists the folder of each configuration once, not once for each seed."""
        found: set[str] = set()
        for name in dict.fromkeys(key.partition("/")[0] for key in keys):
            with contextlib.suppress(FileNotFoundError):
                found.update(f"{name}/{seed}" for seed in os.listdir(self.root / "runs" / name))
        return found.intersection(keys)

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
