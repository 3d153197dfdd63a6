"""A run's folder on disk: configuration, records, checkpoint, status. The truth about a run is what stands here.

``results/runs/<readable name>-<hash>/seed<k>/``

==================  ===============================================================================================
``config.yaml``     the complete configuration
``meta.json``       commit, versions, host, device, threads, fingerprint of the data, id of the partition
``records.jsonl``   one metric value per line, in long form; valid up to the length that status or checkpoint state
``checkpoint.pt``   the state after some round; replaced atomically, deleted when the run has ended
``status.json``     running | interrupted | done | diverged | failed; ``done`` is written last and atomically
``log.txt``         what happened
``lease.<n>``       who works on it (`benchmark.runs.lease`); the highest n counts
==================  ===============================================================================================
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmark.config.schema import FORMAT, RunConfig
from benchmark.engine.records import Record
from benchmark.errors import StorageError
from benchmark.runs.files import storage_error, write_atomically
from benchmark.runs.lease import Busy, Lease, holder_of, take
from benchmark.runs.status import RunState, Status


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file; StorageError if it is not one."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path.absolute()}: cannot be read ({error.strerror}).") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path.absolute()}: damaged ({error}). Delete the folder {path.parent} to run it again."
        ) from error
    if not isinstance(content, dict):
        raise StorageError(
            f"{path.absolute()}: expected a JSON object. Delete the folder {path.parent} to run it again."
        )
    return content


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    # Status ----------------------------------------------------------------------------------------------------

    def status(self) -> Status | None:
        """What the folder says; None if it does not exist. StorageError for a foreign or damaged file."""
        content = read_json(self.path / "status.json")
        if content is None:
            return None
        if content.get("format") != FORMAT:
            raise StorageError(
                f"{self.path.absolute()}: written in format {content.get('format')!r}, this version reads {FORMAT}. "
                "Set paths.results to another folder, or delete this one."
            )
        try:
            return Status(**content | {"state": RunState(content["state"])})
        except (TypeError, KeyError, ValueError) as error:
            raise StorageError(
                f"{self.path.absolute()}/status.json: not a status of ours ({error})."
            ) from error

    def write_status(self, status: Status, durable: bool = False) -> None:
        """Replace the status atomically."""
        stamped = asdict(status) | {"updated": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
        write_atomically(self.path / "status.json", json.dumps(stamped, indent=1).encode(), durable)

    # Who works on it -------------------------------------------------------------------------------------------

    def lease(self) -> Lease:
        """Take the run for this process, to be used in a ``with``; `Busy` if another process has it."""
        return take(self.path, f"run {self.path.parent.name}/{self.path.name}")

    def is_held(self) -> bool:
        """Whether a living process holds the lease."""
        return holder_of(self.path) is not None

    # Configuration ---------------------------------------------------------------------------------------------

    def write_config(self, config: RunConfig) -> None:
        """Write config.yaml, or refuse a folder that belongs to another configuration."""
        path = self.path / "config.yaml"
        if path.exists():
            try:
                old = yaml.safe_load(path.read_text()) or {}
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                old = None
            if not isinstance(old, dict):
                raise StorageError(
                    f"{path.absolute()}: damaged. Delete the folder {self.path} to run it again."
                )
            if old.get("hash") != config.hash:
                raise StorageError(
                    f"{path.absolute()}: belongs to configuration {old.get('hash')!r}, not {config.hash!r}. "
                    "Move the folder away, or set paths.results to another one."
                )
            return
        plain = {"hash": config.hash, **config.model_dump(mode="json")}
        write_atomically(path, yaml.safe_dump(plain, sort_keys=False).encode())

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Write meta.json."""
        write_atomically(self.path / "meta.json", json.dumps(meta, indent=1).encode(), durable=False)

    # Records ---------------------------------------------------------------------------------------------------

    @property
    def records_path(self) -> Path:
        """records.jsonl."""
        return self.path / "records.jsonl"

    def records_size(self) -> int:
        """Bytes of the records as they are now."""
        return self.records_path.stat().st_size if self.records_path.exists() else 0

    def last_round(self) -> int:
        """The round of the last record, for a look at a run at work; 0 if there is none."""
        try:
            with self.records_path.open("rb") as stream:
                stream.seek(max(0, self.records_size() - 4096))
                lines = stream.read().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):  # the last one may be half written
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["round"])
        return 0

    def truncate_records(self, size: int) -> None:
        """Cut what a killed process wrote after its last checkpoint."""
        with self.records_path.open("ab") as stream:
            stream.truncate(size)

    def append_records(self, records: Sequence[Record]) -> int:
        """Append lines and return the new size in bytes."""
        lines = "".join(json.dumps(r._asdict()) + "\n" for r in records)
        try:
            with self.records_path.open("ab") as stream:
                stream.write(lines.encode())
                stream.flush()
                return stream.tell()
        except OSError as error:
            raise storage_error(error, self.records_path) from error

    def read_records(self) -> list[Record]:
        """The records of an ended run; StorageError unless they are complete and unchanged."""
        status = self.status()
        if status is None or not status.ended:
            raise StorageError(f"{self.path.absolute()}: the run has not ended; its records are not read.")
        content = self.records_path.read_bytes() if self.records_path.exists() else b""
        if (
            len(content) != status.records_bytes
            or hashlib.sha256(content).hexdigest() != status.records_sha256
        ):
            raise StorageError(
                f"{self.records_path.absolute()}: {len(content)} bytes, {status.records_bytes} were written, or "
                f"the content has changed. Delete {self.path} to run it again."
            )
        return [Record(**json.loads(line)) for line in content.splitlines()]

    def complete(self, status: Status) -> bool:
        """Cheap check, for thousands of runs, that the records of an ended run have their size."""
        try:
            return self.records_path.stat().st_size == status.records_bytes
        except FileNotFoundError:
            return status.records_bytes == 0

    def records_digest(self) -> tuple[int, str]:
        """(size in bytes, SHA-256) of the records as they are now."""
        content = self.records_path.read_bytes() if self.records_path.exists() else b""
        return len(content), hashlib.sha256(content).hexdigest()

    # Checkpoint ------------------------------------------------------------------------------------------------

    @property
    def checkpoint_path(self) -> Path:
        """checkpoint.pt."""
        return self.path / "checkpoint.pt"

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Replace the checkpoint atomically; on a full disk the previous one stays and StorageError is raised."""
        import torch

        temporary = self.path / f".checkpoint.{os.getpid()}.tmp"
        try:
            with contextlib.suppress(FileNotFoundError), self.records_path.open("rb") as records:
                os.fsync(records.fileno())  # the records that the checkpoint counts reach the disk before it
            with temporary.open("wb") as stream:
                torch.save(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self.checkpoint_path)
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            cause = error if isinstance(error, OSError) else _io_cause(error, self.path)
            if cause is None:
                raise
            raise storage_error(cause, self.checkpoint_path) from error

    def load_checkpoint(self, config: RunConfig) -> dict[str, Any] | None:
        """The checkpoint, or None; StorageError if it is damaged or of another configuration."""
        import torch

        if not self.checkpoint_path.exists():
            return None
        try:
            content = torch.load(self.checkpoint_path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises whatever a file that is not its own makes it do
            raise StorageError(
                f"{self.checkpoint_path.absolute()}: damaged ({type(error).__name__}). Delete it; the run then "
                "starts again."
            ) from error
        if not isinstance(content, dict):
            raise StorageError(
                f"{self.checkpoint_path.absolute()}: damaged (no state in it). Delete it; the run then starts again."
            )
        if content.get("hash") != config.hash or content.get("seed") != config.seed:
            raise StorageError(
                f"{self.checkpoint_path.absolute()}: belongs to configuration {content.get('hash')!r} seed "
                f"{content.get('seed')}, not {config.hash!r} seed {config.seed}. Delete it; the run then starts again."
            )
        return content

    def clean(self, keep_checkpoint: bool) -> None:
        """Remove temporary files that killed processes left, and the checkpoint of an ended run."""
        for leftover in self.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        if not keep_checkpoint:
            self.checkpoint_path.unlink(missing_ok=True)


def _io_cause(error: RuntimeError, folder: Path) -> OSError | None:
    """torch.save turns a full disk into a RuntimeError; tell it from a real one by its text and the free space."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    if isinstance(error.__cause__ or error.__context__, OSError):
        return error.__cause__ or error.__context__  # type: ignore[return-value]
    if "write" in str(error) or free < 1 << 20:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


@dataclass(frozen=True)
class Results:
    """A results folder: ``runs/``, ``partitions/``, ``tables/``, and ``launcher/`` with the lease of a launcher."""

    root: Path

    def open(self) -> Results:
        """Create the folder, or check that it is of this version; StorageError if it is not or cannot be written."""
        marker = self.root / "runs" / "FORMAT"
        try:
            if marker.exists():
                found = marker.read_text().strip()
                if found != str(FORMAT):
                    raise StorageError(
                        f"{self.root.absolute()}: results of format {found!r}, this version writes {FORMAT}. "
                        "Set paths.results to another folder (RESULTS=... for make)."
                    )
                return self
            marker.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.root) from error
        write_atomically(marker, f"{FORMAT}\n".encode())
        return self

    def existing(self) -> Results:
        """As `open`, but a folder without runs is left as it is: for reading."""
        return self.open() if (self.root / "runs").exists() else self

    def run(self, key: str) -> RunFolder:
        """The folder of the run ``<name>/seed<k>``."""
        return RunFolder(self.root / "runs" / key)

    def there(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that have a folder: one look at each configuration, not one at each of its seeds."""
        found: set[str] = set()
        for name in dict.fromkeys(key.partition("/")[0] for key in keys):
            with contextlib.suppress(FileNotFoundError):
                found.update(f"{name}/{seed}" for seed in os.listdir(self.root / "runs" / name))
        return found.intersection(keys)

    @contextlib.contextmanager
    def submission_lease(self) -> Iterator[Lease]:
        """Hold the right to submit jobs for this folder; waits while another process has it."""
        while True:
            try:
                lease = take(self.root / "launcher" / "submission", f"results folder {self.root.absolute()}")
                break
            except Busy:
                time.sleep(0.5)
        with lease:
            yield lease

    def launcher_lease(self) -> Lease:
        """Take the results folder for one launcher, to be used in a ``with``; `Busy` if another one has it."""
        return take(self.root / "launcher", f"results folder {self.root.absolute()}")
