"""Leases: one owner at a time, whatever way the one before ended; files alone tell."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import wait_until

from benchmark.errors import StorageError
from benchmark.runs import lease
from benchmark.runs.lease import (
    BEAT_SECONDS,
    STALE_SECONDS,
    WRITING_SECONDS,
    Busy,
    LeaseLost,
    holder_of,
    take,
)

HOLD = (
    "import sys, time; from pathlib import Path; from benchmark.runs.lease import take\n"
    "with take(Path(sys.argv[1]), 'it'): print('held', flush=True); time.sleep(600)\n"
)


def from_elsewhere(folder: Path, number: int, seconds_ago: float) -> Path:
    """A lease of another machine that was last touched so long ago."""
    path = folder / f"lease.{number}"
    there = {"host": "node7", "pid": 1, "started": "5", "world": "node7 b n", "job": "42", "since": "noon"}
    path.write_text(json.dumps(there))
    then = time.time() - seconds_ago
    os.utime(path, (then, then))
    return path


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with take(folder, "the run") as first:
        assert first.number == 1
        with pytest.raises(Busy, match=rf"the run: .*process {os.getpid()} on .*nothing was changed"):
            take(folder, "the run")
        first.check()
    assert holder_of(folder) is None
    with take(folder, "the run") as second:
        assert second.number == 2
    with take(folder, "the run"):
        # The last one before stays, as a sign to one that comes back; the others go.
        assert sorted(os.listdir(folder)) == ["lease.2", "lease.3"]


def test_what_a_killed_process_held_is_free_at_once(tmp_path: Path, root: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
    with pytest.raises(Busy, match=f"process {holder.pid} on"):
        take(tmp_path, "it")
    holder.kill()
    # Not waited for: what is left of it in the table of processes is no owner.
    wait_until(lambda: holder_of(tmp_path) is None, "the end of the holder")
    with take(tmp_path, "it") as lease:
        assert lease.number == 2
    holder.wait()


def test_another_machine_holds_until_it_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    from_elsewhere(tmp_path, 3, STALE_SECONDS - 25)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 1e6)  # this machine's clock plays no part
        with pytest.raises(Busy, match="process 1 on node7, job 42, since noon"):
            take(tmp_path, "it")
    from_elsewhere(tmp_path, 3, STALE_SECONDS + 5)
    with take(tmp_path, "it") as mine:
        assert mine.number == 4


def test_one_that_comes_back_stops(tmp_path: Path) -> None:
    with take(tmp_path, "it") as sleeper:
        sleeper.check()
        later = from_elsewhere(tmp_path, 2, 0)  # another machine found it silent
        with pytest.raises(LeaseLost, match="suspended for over 120 s"):
            sleeper.check()
    # Leaving, it touches nothing of the new owner's.
    assert json.loads(later.read_text())["host"] == "node7"
    assert holder_of(tmp_path) is not None
    later.unlink()
    with take(tmp_path, "it") as sleeper:
        sleeper.path.unlink()  # by later owners, before the next number
        with pytest.raises(LeaseLost):
            sleeper.check()


def test_a_new_folder_of_the_same_name_is_not_mine(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with take(folder, "it") as first:
        folder.rename(tmp_path / "kept")  # so that its inode is not used again
        with take(folder, "it") as second:
            assert first.number == second.number == 1
            with pytest.raises(LeaseLost, match="the folder was removed"):
                first.check()
            second.check()
        first.__exit__()
    with take(folder, "it") as third, pytest.raises(Busy):
        first.__exit__()
        assert third.number == 2
        take(folder, "it")


def test_a_living_owner_is_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert STALE_SECONDS >= 4 * BEAT_SECONDS, "several missed touches kill nobody"
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.02)
    with take(tmp_path, "it") as mine:
        long_ago = time.time() - 1000
        os.utime(mine.path, (long_ago, long_ago))
        wait_until(lambda: mine.path.stat().st_mtime > long_ago + 500, "a touch")
        mine.path.rename(tmp_path / "away")
        time.sleep(0.1)
        (tmp_path / "away").rename(mine.path)
        os.utime(mine.path, (long_ago, long_ago))
        wait_until(lambda: mine.path.stat().st_mtime > long_ago + 500, "a touch after the file was away")
    os.utime(mine.path, (long_ago, long_ago))
    time.sleep(0.2)
    assert mine.path.stat().st_mtime == pytest.approx(long_ago), "given back, it is not touched any more"


def race(folder: Path) -> list[str]:
    """What came of six that take the lease at the same time."""
    start = threading.Barrier(6)

    def runner(_: int) -> str:
        start.wait()
        try:
            take(folder, "it")
        except Busy:
            return "busy"
        return "won"

    with ThreadPoolExecutor(6) as pool:
        return sorted(pool.map(runner, range(6)))


@pytest.mark.parametrize("before", ["nothing", "released", "silent"])
def test_of_many_at_once_one_wins(tmp_path: Path, before: str) -> None:
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if before == "released":
            with take(folder, "it"):
                pass
        elif before == "silent":
            from_elsewhere(folder, 1, STALE_SECONDS + 5)
        assert race(folder) == ["busy"] * 5 + ["won"]


def test_made_and_not_yet_written(tmp_path: Path) -> None:
    """Between the two a process may be slow, or die."""
    (tmp_path / "lease.1").touch()
    with pytest.raises(Busy, match="one that has just begun, at 20"):
        take(tmp_path, "it")
    then = time.time() - WRITING_SECONDS - 1
    os.utime(tmp_path / "lease.1", (then, then))
    with take(tmp_path, "it") as lease:
        assert lease.number == 2


def test_an_old_list_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may show a list that is seconds old: here first without the owner, then with it."""
    from_elsewhere(tmp_path, 7, 0)
    true, seen = lease._numbers, iter([[2]])
    monkeypatch.setattr(lease, "_numbers", lambda folder: next(seen, None) or true(folder))
    with pytest.raises(Busy, match="node7"):
        take(tmp_path, "it")
    assert os.listdir(tmp_path) == ["lease.7"]


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("benchmark.runs.lease.json.dumps", full)
        with pytest.raises(StorageError, match="the disk is full"):
            take(tmp_path, "it")
    assert os.listdir(tmp_path) == []
