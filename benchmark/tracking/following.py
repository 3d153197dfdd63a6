"""One run on its way from its folder to W&B: which rounds are whole, which are new, and how the run ended."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmark.errors import StorageError
from benchmark.runs.files import storage_error
from benchmark.runs.status import Status
from benchmark.runs.store import RunFolder, read_json
from benchmark.tracking.settings import Note, TrackedRun, TrackingSettings, token
from benchmark.tracking.wandb_session import Log, Session

EXIT_CODES = {"done": 0, "diverged": 0, "failed": 1, "interrupted": 130}
"""Of a run at W&B, by its state; a run that has not ended counts as interrupted."""

LEFT_OUT = ("participation",)
"""Splits with a value per client: their charts would be thousands."""

SHORT = 2
"""Looks during which a run at work is left alone: one that is over by then is sent in one go, at half the cost."""

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one, where PyYAML was built with it: a launch can have hundreds of configurations to read."""

Round = tuple[int, dict[str, float]]


class Records:
    """A file of records that grows, read round by round."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._held: dict[int, dict[str, float]] = {}

    def rounds(self, whole: bool) -> Iterator[Round]:
        """The rounds that are new and whole: all but the last one, or ``whole`` rounds all of them.

        A resumed run repeats rounds, in the same bits: they come again, with the same values.
        """
        try:
            self._read()
        except (ValueError, KeyError, TypeError):
            # The file was cut and has grown again to other lines: from the beginning, at the next look.
            self._offset, self._held = 0, {}
            return
        last = max(self._held, default=0)
        for number in sorted(self._held):
            if whole or number < last:
                yield number, self._held.pop(number)

    def _read(self) -> None:
        try:
            with self._path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size < self._offset:
                    self._offset, self._held = 0, {}
                stream.seek(self._offset)
                content = stream.read()
        except FileNotFoundError:
            return
        end = content.rfind(b"\n") + 1
        for line in content[:end].splitlines():
            record = json.loads(line)
            if record["split"] not in LEFT_OUT:
                self._held.setdefault(record["round"], {})[metric_name(record)] = record["value"]
        self._offset += end


def metric_name(record: Mapping[str, Any]) -> str:
    """The name at W&B: ``test/accuracy``, or ``test/accuracy/class=3`` of a group."""
    name = f"{record['split']}/{record['metric']}"
    return name if record["group"] == "all" else f"{name}/{record['group']}"


class Locks:
    """Which run this process sends, so that no other process of any machine does: ranges of one shared file."""

    def __init__(self, path: Path) -> None:
        self._path, self._handle = path, -1

    def take(self, id: str) -> bool:
        """Whether the run is this process's from now on; `StorageError` if the folder cannot be written."""
        try:
            if self._handle < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise storage_error(error, self._path) from error
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(id))
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return True  # a file system without locks: two trackers of one run are rare, and cost a repeated round
        return True

    def release(self, id: str) -> None:
        """Leave the run to others."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, _place(id))


def _place(id: str) -> int:
    number: int = struct.unpack("<Q", hashlib.sha256(id.encode()).digest()[:8])[0]
    return number >> 2


class Follower:
    """Sends one run."""

    def __init__(
        self, run: TrackedRun, folder: RunFolder, settings: TrackingSettings, session: Session, locks: Locks
    ) -> None:
        self.run, self.folder, self.settings, self.session, self.locks = run, folder, settings, session, locks
        self._log: Log | None = None
        self._note: Note | None = None
        self._pid = 0
        self._records = Records(folder.records_path)
        self._settled = 0
        self._looks = 0

    def look(self, last: bool) -> None:
        """Send what is new; ``last`` ends the W&B run whatever the state of ours.

        Raises:
            Broken: wandb failed; the next look opens the run again.
            StorageError: the disk is full.
        """
        try:
            changed = (self.folder.path / "status.json").stat().st_mtime_ns
        except OSError:
            return  # not begun
        if changed == self._settled:
            return
        try:
            status = self.folder.status()
        except StorageError:
            status = None  # damaged or foreign: whoever needs the run says so
        if status is None:
            self._settled = changed
            return
        if self._is_sent(status):
            self._settled = changed
        elif self._is_ready(status, last) and self.locks.take(self.run.id):
            self._send(status, last or status.state != "running")
            if status.state != "running":
                self._settled = changed

    def _is_sent(self, status: Status) -> bool:
        note = self._note or Note.read(self.folder.path)
        return (
            note is not None
            and note.destination == self.settings.destination
            and note.sent == token(status)
            and status.state != "running"
        )

    def _is_ready(self, status: Status, last: bool) -> bool:
        """Whether all is there that is to be sent: of a run at work the description, of an ended one all records."""
        if status.ended:
            return self.folder.complete(status)
        if status.state != "running" or last:
            return True
        self._looks += 1
        return self._looks > SHORT and (self.folder.path / "meta.json").exists()

    def _send(self, status: Status, end: bool) -> None:
        if self._log is not None and (not self._log.usable or (not end and status.pid != self._pid)):
            # Broken, or the run has moved to another process, whose use of the machine is to be sampled from now on.
            if self._log.usable:
                self._log.finish(EXIT_CODES["interrupted"], comes_back=True)
            self._log = None
        if self._log is None:
            self._open(status, end)
        assert self._log is not None
        before = self._log.history
        for number, values in self._records.rounds(whole=status.state != "running"):
            self._log.round(number, values)
        if end:
            self._finish(status)
        elif self._log.history > before:
            self._write(round=self._log.history)

    def _open(self, status: Status, end: bool) -> None:
        old = Note.read(self.folder.path)
        if old is not None and old.destination != self.settings.destination:
            old = None
        if old is not None and not self.run.group:
            # A table that had the run before knows more about it.
            tags = tuple(dict.fromkeys((*old.tags, *self.run.tags)))
            self.run = replace(self.run, group=old.group, tags=tags)
        here = status.host == socket.gethostname() and not end
        self._pid = status.pid
        self._records = Records(self.folder.records_path)
        wanted = description(self.run, self.folder, self.settings)
        meta = wanted["config"].get("meta", {})
        self._log = self.session.open(
            wanted, old, status.pid if here else None, meta.get("host", status.host)
        )
        self._note = Note(
            self.run.id,
            self.settings.destination,
            self._log.mode,
            self._log.history,
            self._log.first,
            self._log.file,
            group=self.run.group,
            tags=self.run.tags,
        )
        self._write()

    def _finish(self, status: Status) -> None:
        assert self._log is not None
        self._log.summary(summary(status, self.folder))
        over = status.state in ("done", "diverged", "failed")
        self._log.finish(EXIT_CODES.get(status.state, EXIT_CODES["interrupted"]), comes_back=not over)
        self.session.check_space()  # what was just said may not have reached the offline file
        sent = "" if status.state == "running" else token(status)
        self._write(round=self._log.history, closed=True, sent=sent)
        self._log = None
        self.locks.release(self.run.id)

    def _write(self, **changes: Any) -> None:
        assert self._note is not None
        self._note = replace(self._note, **changes)
        self._note.write(self.folder.path)


def description(run: TrackedRun, folder: RunFolder, settings: TrackingSettings) -> dict[str, Any]:
    """The arguments of ``wandb.init`` that say what a run is."""
    try:
        config: dict[str, Any] = yaml.load((folder.path / "config.yaml").read_text(), Loader=_YAML) or {}
        config["meta"] = read_json(folder.path / "meta.json") or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, StorageError):
        config = {}
    name, _, seed = run.key.partition("/")
    return {
        "id": run.id,
        "name": f"{name.rpartition('-')[0]} {seed}",
        "group": run.group[:128],
        "job_type": str((config.get("method") or {}).get("name", "run"))[:64],
        "tags": tuple(dict.fromkeys(tag[:64] for tag in (*run.tags, *settings.tags) if tag)),
        "notes": str(folder.path.absolute()),
        "config": {**config, "folder": str(folder.path.absolute())},
    }


def summary(status: Status, folder: RunFolder) -> dict[str, Any]:
    """What stands above the charts: state, folder, seconds, and the last evaluation as ``final/<split>/<metric>``."""
    values: dict[str, Any] = {
        "state": status.state,
        "folder": str(folder.path.absolute()),
        "rounds_done": status.round,
        "message": status.message[:1000],
        "seconds": status.seconds,
    }
    rounds = status.round - _resumed_after(folder)
    if status.seconds and rounds > 0:
        values["seconds_per_round"] = status.seconds / rounds
    for split, metrics in status.final.items():
        values |= {f"final/{split}/{metric}": value for metric, value in metrics.items()}
    return values


def _resumed_after(folder: RunFolder) -> int:
    """The round after which the process went on that the status speaks of: its seconds count from there."""
    try:
        found = re.findall(
            r" start: | resumed after round (\d+)$",
            (folder.path / "log.txt").read_text(errors="replace"),
            re.M,
        )
    except OSError:
        return 0
    # `start` is written first: one without a line behind it began anew.
    return int(found[-1]) if found and found[-1] else 0
