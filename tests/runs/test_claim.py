"""Two processes on one run: one waits, takes over what another one left, or ends quietly; the bits stay."""

import os
import signal
import sys
from pathlib import Path

import pytest
from processes import wait_until
from rough_ends import fall_asleep, fork, remains, start
from tiny_runs import (
    FORKS,
    STATEFUL,
    STATELESS,
    Gate,
    bits,
    carry_out,
    folder_of,
    round_on_disk,
    tiny,
    words_of,
)

from benchmark.__main__ import main
from benchmark.config.schema import RunConfig
from benchmark.runs import claim


@pytest.mark.slow
def test_one_at_a_time_and_a_killed_process_holds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    calm, config = (tiny(tmp_path / name, STATELESS) for name in ("calm", "shared"))
    carry_out(calm)
    folder, first = folder_of(config), fork(config, Gate(2))
    wait_until(lambda: round_on_disk(folder) >= 1, "the first round")
    assert main(words_of(config)) == 2
    assert "another process works on the run" in capsys.readouterr().err
    assert folder.is_held and not folder.is_finished
    first.kill()
    first.join()
    assert not folder.is_held
    assert main(words_of(config)) == 0
    assert bits(config) == bits(calm) and remains(config) == []


@pytest.mark.parametrize("at", [0, 1, 3], ids=["before round 1", "after round 1", "after the last round"])
def test_a_process_that_slept_while_another_one_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calm: RunConfig, at: int
) -> None:
    config, results = tiny(tmp_path / "shared", STATEFUL), FORKS.Queue()
    folder, sleeper = folder_of(config), start(fall_asleep, config, at, results)
    wait_until(lambda: is_stopped(sleeper.pid), "the sleep of the first process")
    assert folder.is_held
    monkeypatch.setattr(claim, "STALE_SECONDS", 1.0)
    wait_until(lambda: not folder.is_held, "the end of its claim")
    assert carry_out(config).state == "done"
    assert bits(config) == bits(calm) and remains(config) == []
    os.kill(sleeper.pid, signal.SIGCONT)
    assert results.get(timeout=300) == ("done", "")
    sleeper.join()
    assert sleeper.exitcode == 0
    assert bits(config) == bits(calm) and remains(config) == []


@pytest.mark.slow
def test_a_process_that_wakes_while_another_one_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calm: RunConfig
) -> None:
    """It ends, and leaves claim and folder to the other one."""
    config, results = tiny(tmp_path / "shared", STATEFUL), FORKS.Queue()
    sleeper = start(fall_asleep, config, 1, results)
    wait_until(lambda: is_stopped(sleeper.pid), "the sleep of the first process")
    monkeypatch.setattr(claim, "STALE_SECONDS", 1.0)
    wait_until(lambda: not folder_of(config).is_held, "the end of its claim")

    def wake(round: int, *_: object) -> None:
        if round == 3:  # checkpoints of this process have replaced those of the first
            os.kill(sleeper.pid, signal.SIGCONT)
            assert results.get(timeout=300) == ("running", "another process has taken the run over")
            monkeypatch.setattr(claim, "STALE_SECONDS", 300.0)
            assert folder_of(config).is_held

    assert carry_out(config, wake).state == "done"
    sleeper.join()
    assert bits(config) == bits(calm) and remains(config) == []


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
