"""A lease on a folder: at most one process works on it, also if several machines share the folder.

The holder is the process that created the file ``lease.<n>`` with the highest n. Exclusive creation succeeds for one
process only, also on NFS. A thread of the holder touches the file. Times are those of the file system, so that the
clocks of machines do not matter. A lease is free again if its file says so, if its process ran on this machine and has
ended, or if it was not touched for `STALE_SECONDS`. The next holder creates ``lease.<n + 1>``. A process that was
suspended for a long time finds the higher number, and stops before it writes anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

from benchmark.errors import StorageError
from benchmark.runs.files import storage_error

STALE_SECONDS = 120.0
"""A lease that was not touched for this time is free."""

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

    host: str
    pid: int
    started: str
    world: str
    job: str
    since: str

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(
            socket.gethostname(),
            pid,
            _started(pid) or "",
            _world(),
            os.environ.get("SLURM_JOB_ID", ""),
            time.strftime("%F %T"),
        )

    def __str__(self) -> str:
        job = f", job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"

    def is_gone(self) -> bool:
        """Whether the process is known to have ended: it ran in this system and is not there any more."""
        return self.world == _world() and _started(self.pid) != self.started


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


@dataclass
class Lease:
    """A lease that this process holds until the end of a ``with`` statement."""

    folder: Path
    number: int
    holder: Holder
    lost: bool = False

    @property
    def path(self) -> Path:
        """Its file."""
        return _path(self.folder, self.number)

    def __enter__(self) -> Lease:
        _heart.add(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _heart.remove(self)
        self.release()

    def check(self) -> None:
        """Raise `LeaseLost` if another process has taken over. To be called before anything is written."""
        if self.lost or _path(self.folder, self.number + 1).exists():
            self.lost = True
            raise LeaseLost(
                f"{self.folder.absolute()}: this process ({self.holder}) was suspended for over {STALE_SECONDS:g} s, "
                "and another one has taken over. Nothing more is written here."
            )

    def touch(self) -> None:
        """Show that this process is alive."""
        try:
            os.utime(self.path)
        except OSError:
            # Either the file system is not reachable, or another process has taken over and removed the file.
            self.lost = self.lost or _path(self.folder, self.number + 1).exists()

    def release(self) -> None:
        """Mark it as free. The file stays, because its number must not be used again."""
        with contextlib.suppress(OSError):
            # Written in place, because a full disk has no space for a new file.
            handle = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(handle, RELEASED, 0)
                os.ftruncate(handle, len(RELEASED))
            finally:
                os.close(handle)


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


def _latest(folder: Path) -> int:
    """The highest number; 0 if there is none."""
    return max(_numbers(folder), default=0)


def holder_of(folder: Path) -> Holder | None:
    """Who holds the folder; None if nobody does."""
    number = _latest(folder)
    return None if not number else _holder(_path(folder, number), folder)


def _holder(path: Path, folder: Path) -> Holder | None:
    try:
        with path.open("rb") as stream:
            content, touched = stream.read(), os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return None
    if content == RELEASED:
        return None
    try:
        holder = Holder(**json.loads(content))
    except (ValueError, TypeError):
        # The file is created but not yet written, or its process died in between.
        holder = Holder("unknown", 0, "", "", "", time.strftime("%F %T", time.localtime(touched)))
    if holder.is_gone() or _now(folder) - touched > STALE_SECONDS:
        return None
    return holder


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
            lease = _attempt(folder, what)
            if lease is not None:
                return lease
    except OSError as error:
        raise storage_error(error, folder) from error


def _attempt(folder: Path, what: str) -> Lease | None:
    """A lease, or None if another process was faster."""
    number = _latest(folder)
    there = _holder(_path(folder, number), folder) if number else None
    if there is not None:
        raise Busy(
            f"{what}: another process works on it ({there}). Wait for it, or stop it; nothing was changed."
        )
    lease = Lease(folder, number + 1, Holder.here())
    try:
        handle = os.open(lease.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(json.dumps(asdict(lease.holder)).encode())
    except OSError:
        lease.path.unlink(missing_ok=True)
        raise
    there_now = _numbers(folder)
    if max(there_now, default=0) != lease.number:
        # The list of the folder was out of date, as may happen on NFS, so the number is an old one.
        lease.path.unlink(missing_ok=True)
        return None
    # The file of the holder before stays, for `touch` and `check` of a suspended process; older ones are removed.
    for other in there_now:
        if other < number:
            _path(folder, other).unlink(missing_ok=True)
    return lease


class _Heart:
    """The thread that touches all leases of this process."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._leases.append(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        with self._lock:
            self._leases = [other for other in self._leases if other is not lease]

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with self._lock:
                leases = list(self._leases)
            for lease in leases:
                lease.touch()


_heart = _Heart()
# A forked child holds no lease, and must not touch those of its parent.
os.register_at_fork(after_in_child=_heart.__init__)  # type: ignore[misc]
