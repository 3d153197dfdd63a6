"""A lease on a folder: who works on it, told by files alone, so that it holds between machines that share the folder.

The owner is whoever made the file ``lease.<n>`` with the highest n. It is made by exclusive creation, which one
process wins, also on NFS. While the owner lives, a thread of it touches the file; the file system stamps the time, so
that clocks of machines play no part. A lease is free again when its file says so, when it was made on this machine by
a process that is gone, or when it was not touched for `STALE_SECONDS`. The next owner makes ``lease.<n + 1>``: numbers
only grow, so that one that was thought dead and comes back finds a higher number, and stops before it writes again.
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
"""A lease that was not touched for so long belongs to nobody."""

BEAT_SECONDS = 15.0
"""Time between two touches."""

RELEASED = b"released\n"


class Busy(StorageError):
    """Another process works on it."""


class LeaseLost(StorageError):
    """This process was thought dead, and another one took over."""


@dataclass(frozen=True)
class Holder:
    """Who made a lease. ``started`` and ``world`` tell a process from a later one with the same number."""

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
        """For messages."""
        job = f", job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"

    def is_gone(self) -> bool:
        """Whether the process is known to have ended: it ran in this very system, and does not any more."""
        return self.world == _world() and _started(self.pid) != self.started


@cache
def _world() -> str:
    """What process numbers mean: the host; on Linux also its boot and the namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str | None:
    """When a process started, in ticks since boot (Linux only); None if there is none, or only its remains."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return ""
    try:
        # The name in brackets may hold anything; the state and the start time are the 1st and the 20th field behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@dataclass
class Lease:
    """A lease that this process holds, until the end of the ``with`` that it is used in."""

    folder: Path
    number: int
    holder: Holder
    lost: bool = False

    @property
    def path(self) -> Path:
        """Its file."""
        return _path(self.folder, self.number)

    def __enter__(self) -> Lease:
        """Touch it from now on."""
        _heart.add(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave it to the next one."""
        _heart.remove(self)
        self.release()

    def check(self) -> None:
        """`LeaseLost` if another process has taken over; to be called before anything is written."""
        if self.lost or _path(self.folder, self.number + 1).exists():
            self.lost = True
            raise LeaseLost(
                f"{self.folder.absolute()}: this process ({self.holder}) was not heard of for {STALE_SECONDS:g} s, and "
                "another one took its work over. Nothing more is written here."
            )

    def touch(self) -> None:
        """Say that this process lives."""
        try:
            os.utime(self.path)
        except OSError:
            # The file system is away, or the lease was taken over and tidied: `check` tells which.
            self.lost = self.lost or _path(self.folder, self.number + 1).exists()

    def release(self) -> None:
        """Leave it to the next one. The file stays: its number must not come again."""
        with contextlib.suppress(OSError):
            # In place: a full disk has no room for new content.
            handle = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(handle, RELEASED, 0)
                os.ftruncate(handle, len(RELEASED))
            finally:
                os.close(handle)


def _path(folder: Path, number: int) -> Path:
    return folder / f"lease.{number}"


def _numbers(folder: Path) -> list[int]:
    """Of all leases that there are files of."""
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
        # Made, and not yet written; or its writer died between the two.
        holder = Holder("unknown", 0, "", "", "", time.strftime("%F %T", time.localtime(touched)))
    if holder.is_gone() or _now(folder) - touched > STALE_SECONDS:
        return None
    return holder


def _now(folder: Path) -> float:
    """The time by the clock of the file system, which is not this machine's where it is shared."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"\0")
            stream.flush()
            return os.fstat(stream.fileno()).st_mtime
    except OSError:
        return time.time()  # read only or full: nobody will write here with what is decided by this


def take(folder: Path, what: str) -> Lease:
    """A lease on ``folder``, which is made if it is not there.

    Raises `Busy`, naming ``what`` and the holder, if another process has it, `StorageError` if the folder cannot be
    written.
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
        # The number was an old one: a list of the folder that was out of date.
        lease.path.unlink(missing_ok=True)
        return None
    # The one before shows a process that comes back that it has been succeeded; those before that have no use.
    for other in there_now:
        if other < number:
            _path(folder, other).unlink(missing_ok=True)
    return lease


class _Heart:
    """The thread that touches all leases of this process."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
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
            self._changed.wait(BEAT_SECONDS)
            with self._lock:
                leases = list(self._leases)
            for lease in leases:
                lease.touch()


_heart = _Heart()
# A child that was forked holds nothing, and must not keep alive what its parent holds.
os.register_at_fork(after_in_child=_heart.__init__)  # type: ignore[misc]
