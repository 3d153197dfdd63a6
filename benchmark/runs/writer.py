"""What a process that has the lease of a run writes into its folder.

A process may be suspended anywhere, for so long that another one takes over. So it writes only files that have the
number of its lease in their names, and looks at the lease before a file gets a name that processes share.
"""

import hashlib
import io
import json
import os
import socket
import time
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmark import digests, sources
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.runs import checkpoint
from benchmark.runs.files import storing, write_atomically
from benchmark.runs.lease import Lease
from benchmark.runs.status import Status
from benchmark.runs.store import RunFolder, damaged, record_lines


@dataclass
class RunWriter:
    """Writes to the folder of a run for the process that holds ``lease``.

    Attributes:
        records_sha256: Of the records of the whole run, as far as they are written.
        records_bytes: Their size.
        files: SHA-256 of ``config.yaml``, ``meta.json`` and ``code.zip``, by name.
    """

    folder: RunFolder
    lease: Lease
    records_sha256: Any = field(default_factory=hashlib.sha256)
    records_bytes: int = 0
    files: dict[str, str] = field(default_factory=dict)

    def _numbered(self, name: str) -> Path:
        """The file of this process for ``name``: ``records.3.jsonl`` for ``records.jsonl``."""
        stem, _, suffix = name.partition(".")
        return self.folder.path / f"{stem}.{self.lease.number}.{suffix}"

    def write_config(self, config: RunConfig) -> None:
        """Write config.yaml, if it is not there."""
        path = self.folder.config_path
        if not path.exists():
            plain = {"hash": config.hash, **config.model_dump(mode="json")}
            write_atomically(path, yaml.safe_dump(plain, sort_keys=False).encode(), allowed=self.lease.check)
        self.files[path.name] = digests.of_file(path)

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Write meta.json."""
        content = json.dumps(meta, indent=1).encode()
        write_atomically(self.folder.path / "meta.json", content, False, self.lease.check)
        self.files["meta.json"] = hashlib.sha256(content).hexdigest()

    def write_code(self, names: Iterable[str]) -> None:
        """Write code.zip with the files of these names, as the process has executed them."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(
                    zipfile.ZipInfo(name.lstrip("/")), sources.content(name) or b"", zipfile.ZIP_DEFLATED
                )
        write_atomically(self.folder.path / "code.zip", stream.getvalue(), False, self.lease.check)
        self.files["code.zip"] = hashlib.sha256(stream.getvalue()).hexdigest()

    def write_status(self, status: Status, durable: bool = False) -> None:
        """Replace the status of this process or, if the run has ended, publish its result."""
        path = self.folder.result_path if status.ended else self._numbered("status.json")
        write_status(path, status, durable, self.lease)

    # Records ---------------------------------------------------------------------------------------------------

    def start_records(self, size: int = 0, sha256: str = "") -> bool:
        """Begin the records of this process with the first ``size`` bytes of those that the process before wrote.

        Whether these are there, with the SHA-256 ``sha256``. Otherwise nothing is written.
        """
        content = b""
        if size:
            content = self.folder.records_path.read_bytes()[:size] if self.folder.records_size() else b""
            if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
                return False
        write_atomically(self._numbered("records.jsonl"), content, allowed=self.lease.check)
        self._remove("records.*.jsonl", "status.*.json", before=self.lease.number)
        self.records_sha256, self.records_bytes = hashlib.sha256(content), len(content)
        return True

    def append_records(self, records: Sequence[Record]) -> None:
        """Append lines to the records of this process."""
        lines = record_lines(records)
        path = self._numbered("records.jsonl")
        with storing(path), path.open("ab") as stream:
            stream.write(lines)
        self.records_sha256.update(lines)
        self.records_bytes += len(lines)

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Replace the checkpoint. Raises `StorageError` if the disk is full; the old one then stays."""
        self._sync_records()  # the records that the checkpoint counts reach the disk before it
        records = {"records_bytes": self.records_bytes, "records_sha256": self.records_sha256.hexdigest()}
        checkpoint.save(self.folder.checkpoint_path, content | records, self.lease.check)

    def _sync_records(self) -> None:
        path = self._numbered("records.jsonl")
        with storing(path), path.open("rb") as stream:
            os.fsync(stream.fileno())

    # The end ---------------------------------------------------------------------------------------------------

    def publish(self, status: Status, keep_checkpoint: bool) -> None:
        """Give records and status of an ended run their final names, and remove what only a run at work needs.

        Raises `DamagedError` if the records are not what this process wrote.
        """
        records = self._numbered("records.jsonl")
        if digests.of_file(records) != status.records_sha256:
            raise damaged(records, "changed by another program while the run was at work")
        self._sync_records()
        self.lease.check()
        with storing(records):
            records.replace(self.folder.path / "records.jsonl")
        self.write_status(status, durable=True)
        self.clean(keep_checkpoint)

    def clean(self, keep_checkpoint: bool) -> None:
        """Remove the files of processes at work, and the checkpoint of an ended run."""
        self._remove("records.*.jsonl", "status.*.json", before=self.lease.number + 1)
        for leftover in self.folder.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        if not keep_checkpoint:
            self.folder.checkpoint_path.unlink(missing_ok=True)

    def _remove(self, *kinds: str, before: int) -> None:
        """Remove files of processes whose leases have smaller numbers."""
        for path in (path for kind in kinds for path in self.folder.path.glob(kind)):
            if int(path.name.split(".")[1]) < before:
                path.unlink(missing_ok=True)


def write_status(path: Path, status: Status, durable: bool = False, lease: Lease | None = None) -> None:
    """Write a status, with the digest by which `RunFolder.status` knows it."""
    content = asdict(status) | {"updated": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
    content["digest"] = digests.of(content)
    allowed = lease.check if lease else lambda: None
    write_atomically(path, json.dumps(content, indent=1).encode(), durable, allowed)
