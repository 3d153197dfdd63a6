"""A claim on a run: which process works on it. It saves time only: two processes on one run get the same bits.

The claim is a file beside the run's folder, made exclusively and touched by a thread. It is free when its process has
ended, which is known on the machine of that process alone, or when it was not touched for `STALE_SECONDS`. Times are
those of the file system.
"""

import contextlib
import os
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmark.runs.files import storing

BEAT_SECONDS = 15.0
"""Time between two touches."""

STALE_SECONDS = 120.0
"""A claim that was not touched for this time is free."""


@cache
def _world() -> str:
    """The system in which a process number is valid: the host; on Linux also its boot and the namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _beginning(pid: int) -> str:
    """When a process began, in ticks since boot; empty if it has ended. ``-`` if not on Linux: its claim grows old."""
    if not Path("/proc/self/stat").exists():
        return "-"
    try:
        # The state and the beginning are the 1st and 20th field after the name, which may contain any characters.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_held(claim: Path) -> bool:
    """Whether a living process holds the claim."""
    try:
        world, pid, beginning, _ = claim.read_text().split()
        if world == _world() and _beginning(int(pid)) != beginning:
            return False
        return _now(claim.parent) - claim.stat().st_mtime < STALE_SECONDS
    except FileNotFoundError:
        return False
    except (OSError, ValueError):  # it is being written, or it is damaged
        with contextlib.suppress(OSError):
            return _now(claim.parent) - claim.stat().st_mtime < STALE_SECONDS
        return False


def _now(folder: Path) -> float:
    """The time of the file system."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime


@contextlib.contextmanager
def claimed(claim: Path) -> Iterator[bool]:
    """Whether this process has the claim, until the end of the ``with``."""
    mark = uuid.uuid4().hex
    with storing(claim):
        claim.parent.mkdir(parents=True, exist_ok=True)
        if claim.exists() and not is_held(claim):
            # Two takers may both get here: then both work, and get the same bits.
            claim.unlink(missing_ok=True)
        try:
            with claim.open("x") as stream:
                stream.write(f"{_world()} {os.getpid()} {_beginning(os.getpid())} {mark}")
        except FileExistsError:
            yield False
            return
        except OSError:  # a full disk: an empty claim would seem to be held
            claim.unlink(missing_ok=True)
            raise
    ended = threading.Event()
    threading.Thread(target=_beat, args=(claim, mark, ended), name="claim", daemon=True).start()
    try:
        yield True
    finally:
        ended.set()
        if _is_mine(claim, mark):
            claim.unlink(missing_ok=True)


def _beat(claim: Path, mark: str, ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):  # the file system may not be reachable
            if _is_mine(claim, mark):
                os.utime(claim)


def _is_mine(claim: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return claim.read_text().endswith(mark)
    return False
