"""Waiting, and looking at other processes, for tests."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LONGEST = 300.0
"""Seconds before a wait gives up: machines that run tests can be slow."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = LONGEST) -> None:
    """Look a hundred times a second; AssertionError with ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and not only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid: int) -> list[int]:
    """Living processes that a process has started, and theirs."""
    found = []
    with suppress(OSError):  # the process has ended meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # only this thread has
                for child in map(int, (thread / "children").read_text().split()):
                    found += [child, *descendants(child)]
    return found


def executable(path: Path, script: str) -> None:
    """Write a script of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
