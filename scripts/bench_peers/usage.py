"""CPU time and memory of a process's descendants, from /proc: a framework may have several processes."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
Stat = tuple[int, int]
"""(parent, clock ticks of the process and of its children that have ended)."""


def _stats() -> dict[int, Stat]:
    """What /proc says of each process that is there."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            fields = text.rpartition(")")[2].split()  # the name before it may hold spaces
            found[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return found


def _below(root: int, stats: dict[int, Stat]) -> list[int]:
    found, before = [root], 0
    while len(found) > before:
        new, before = set(found[before:]), len(found)
        found += [pid for pid, (parent, _) in stats.items() if parent in new]
    return found[1:]


def cpu_seconds(root: int) -> float:
    """User and system time of all descendants of the process ``root``."""
    stats = _stats()
    return sum(stats[pid][1] for pid in _below(root, stats)) / TICKS


def memory(root: int) -> float:
    """MiB of all descendants of the process ``root``; a page that n of them share counts 1/n for each."""
    total = 0
    for pid in _below(root, _stats()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended meanwhile
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
