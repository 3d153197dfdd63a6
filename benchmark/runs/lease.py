"""A lease on a folder: at most one process works on it, also if several machines share the folder.

The holder is the process that created the file ``lease.<n>`` with the highest n. Exclusive creation succeeds for one
process only, also on NFS. A thread of the holder touches the file. Times are those of the file system, so that the
clocks of machines do not matter. A lease is free again if its file says so, if its process ran on this machine and has
ended, or if it was not touched for `STALE_SECONDS`. The next holder creates ``lease.<n + 1>``. A process that was
suspended for a long time finds the higher number, and stops before it writes anything.
"""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from benchmark.errors import StorageError
from benchmark.runs.files import storage_error

STALE_SECONDS = 120.0
"""A lease that was not touched for this time is free."""

WRITING_SECONDS = 10.0
"""So long a process has to write its name into a new lease. After that an empty or damaged file is no lease."""

BEAT_SECONDS = 15.0
"""Time between two touches."""

RELEASED = b"released\n"


class Busy(StorageError):
    """Another process holds the lease."""


class LeaseLost(StorageError):
    """This process did not touch its lease for too long, and another one took over."""


@dataclass(frozen=True)
class Holder:
    """The process that made a lease. ``started`` and ``world`` distinguish it from a later one with the same number."""

    host: str = "unknown"
    pid: int = 0
    started: str = ""
    world: str = ""
    job: str = ""
    since: str = ""

    def __str__(self) -> str:
        if not self.pid:
            return f"one that has just begun, at {self.since}"
        job = f", job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"


@cache
def _world() -> str:
    """The system in which a process number is valid: the host; on Linux also its boot and the namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str | None:
    """When a process started, in ticks since boot (empty if not on Linux); None if it has ended."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return ""
    try:
        # The state and the start time are the 1st and 20th field after the name, which may contain any characters.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@dataclass(frozen=True)
class Lease:
    """A lease that this process holds until the end of a ``with`` statement. A thread touches it."""

    folder: Path
    number: int
    inode: int
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def path(self) -> Path:
        """Its file."""
        return _path(self.folder, self.number)

    def __enter__(self) -> "Lease":
        threading.Thread(target=self._touch, name="lease", daemon=True).start()
        return self

    def _touch(self) -> None:
        while not self.released.wait(BEAT_SECONDS):
            # The file system may not be reachable, or another process has taken over and removed the file.
            with contextlib.suppress(OSError):
                if self._is_there():
                    os.utime(self.path)

    def __exit__(self, *_: object) -> None:
        """Mark it as free. The file stays, because its number must not be used again."""
        self.released.set()
        if self._is_there():
            with contextlib.suppress(OSError), self.path.open("r+b") as stream:
                # Written in place, because a full disk has no space for a new file.
                stream.write(RELEASED)
                stream.truncate()

    def _is_there(self) -> bool:
        """Whether its file is; in a new folder of the same name there may be another process's."""
        try:
            return self.path.stat().st_ino == self.inode
        except OSError:
            return False

    def check(self) -> None:
        """Raise `LeaseLost` if another process has taken over. To be called before anything is written."""
        # Later holders remove this file before the one of the next number.
        if _path(self.folder, self.number + 1).exists() or not self._is_there():
            raise LeaseLost(
                f"{self.folder.absolute()}: this process was suspended for over {STALE_SECONDS:g} s and another one "
                "has taken over, or the folder was removed. Nothing more is written here."
            )


def _path(folder: Path, number: int) -> Path:
    return folder / f"lease.{number}"


def _numbers(folder: Path) -> list[int]:
    """Numbers of all leases of the folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    parts = (name.partition("lease.") for name in names)
    return [int(number) for before, _, number in parts if not before and number.isdigit()]


def holder_of(folder: Path, number: int | None = None) -> Holder | None:
    """Who holds the folder by the lease of this number, or else by the last one; None if nobody does."""
    number = max(_numbers(folder), default=0) if number is None else number
    try:
        with _path(folder, number).open("rb") as stream:
            content, touched = stream.read(), os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return None
    silent = _now(folder) - touched
    if content == RELEASED or silent > STALE_SECONDS:
        return None
    try:
        holder = Holder(**json.loads(content))
    except (ValueError, TypeError):
        # The file is created but not yet written, or its process died in between, or it is damaged.
        since = time.strftime("%F %T", time.localtime(touched))
        return Holder(since=since) if silent < WRITING_SECONDS else None
    has_ended = holder.world == _world() and _started(holder.pid) != holder.started
    return None if has_ended else holder


def _now(folder: Path) -> float:
    """The time by the file system's clock, which may differ from this machine's."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"\0")
            stream.flush()
            return os.fstat(stream.fileno()).st_mtime
    except OSError:
        return time.time()  # The folder is read-only or the disk is full, so the answer is only shown.


def take(folder: Path, what: str) -> Lease:
    """Take a lease on ``folder``, which is created if needed.

    Raises:
        Busy: Another process has it. The message names ``what`` and the holder.
        StorageError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            number = max(_numbers(folder), default=0)
            holder = holder_of(folder, number)
            if holder is not None:
                raise Busy(
                    f"{what}: another process works on it ({holder}). Wait for it, or stop it; nothing was changed."
                )
            lease = _create(folder, number + 1)
            if lease is not None:
                return lease
    except OSError as error:
        raise storage_error(error, folder) from error


def _create(folder: Path, number: int) -> Lease | None:
    """Create the file of a lease; None if another process was faster."""
    path = _path(folder, number)
    try:
        stream = path.open("xb")
    except FileExistsError:
        return None
    try:
        with stream:
            pid, job = os.getpid(), os.environ.get("SLURM_JOB_ID", "")
            since = time.strftime("%F %T")
            holder = Holder(socket.gethostname(), pid, _started(pid) or "", _world(), job, since)
            stream.write(json.dumps(asdict(holder)).encode())
            inode = os.fstat(stream.fileno()).st_ino
    except OSError:
        path.unlink(missing_ok=True)
        raise
    there = _numbers(folder)
    if max(there, default=0) != number:
        # The list of the folder was out of date, as may happen on NFS, or this process was suspended before it wrote.
        path.unlink(missing_ok=True)
        return None
    # The file of the holder before stays, for `check` of a suspended process; older ones are removed in their order.
    for older in sorted(there):
        if older < number - 1:
            _path(folder, older).unlink(missing_ok=True)
    return Lease(folder, number, inode)
