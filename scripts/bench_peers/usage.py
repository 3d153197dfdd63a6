"""CPU time and memory of a process's descendants, from /proc: a framework may have several processes."""

import os
import re
from pathlib import Path


def _descendants(root: int) -> list[int]:
    pids = [root]
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            pids += map(int, _read(thread / "children").split())
    return pids[1:]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process ended meanwhile
        return ""


def cpu_seconds(root: int) -> float:
    """User and system time of all descendants of the process ``root``, and of their children that have ended."""
    # The name of the process, in brackets, may hold spaces.
    stats = [_read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() for pid in _descendants(root)]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def memory(root: int) -> float:
    """MiB of all descendants of the process ``root``; a page that n of them share counts 1/n for each."""
    texts = [_read(Path(f"/proc/{pid}/smaps_rollup")) for pid in _descendants(root)]
    return sum(int(kib) for text in texts for kib in re.findall(r"^Pss: +(\d+)", text, re.MULTILINE)) / 1024
