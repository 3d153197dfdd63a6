"""A run ends in the same bits however often and however rudely it is stopped."""

import os
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import footprint
from processes import wait_until
from rough_ends import deaths, remains, start
from tiny_runs import (
    STATEFUL,
    STATELESS,
    bits,
    carry_out,
    command,
    folder_of,
    interrupted,
    result_of,
    round_on_disk,
    tiny,
    words_of,
)

from benchmark.runs.result_files import read_records


def undisturbed(tmp_path: Path, *layers: Mapping[str, Any], **runtime: Any) -> tuple[bytes, str, dict]:
    calm = tiny(tmp_path / "calm", *layers, **runtime)
    assert carry_out(calm).state == "done"
    return bits(calm)


# kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["from the start", "from a checkpoint"])
def test_killed_before_and_after_each_step_to_the_disk(tmp_path: Path, stopped: bool) -> None:
    layers = (STATEFUL, {"train": {"rounds": 3 if stopped else 2}})
    expected = undisturbed(tmp_path, *layers)
    config, steps = tiny(tmp_path / "killed", *layers), []
    if stopped:
        shutil.move(interrupted(tmp_path / "stopped").paths.results, tmp_path / "before")
    else:
        (tmp_path / "before").mkdir()
    shutil.copytree(tmp_path / "before", tmp_path / "killed")
    for step in deaths(config):
        steps.append(step)
        assert carry_out(config).state == "done", step
        assert bits(config) == expected, step
        assert remains(config) == [], step
        shutil.rmtree(tmp_path / "killed")
        shutil.copytree(tmp_path / "before", tmp_path / "killed")
    # Either the start is recorded, or what another attempt had is copied with its checkpoint.
    assert steps.count("within records") >= 3
    assert steps.count("before replace checkpoint.pt") == (2 if stopped else 1)
    assert {"after replace result.json", "before rename seed0", "after rename seed0"} <= set(steps)
    assert ("after rmtree" in steps) == stopped
    assert steps[-1] == "after unlink"
    assert bits(config) == expected and remains(config) == []


# Signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "layer"),
    [
        (signal.SIGTERM, STATELESS),
        (signal.SIGINT, STATEFUL),
        pytest.param(signal.SIGHUP, STATELESS, marks=pytest.mark.slow),
        pytest.param(signal.SIGQUIT, STATELESS, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_the_state(tmp_path: Path, layer: dict[str, Any], number: signal.Signals) -> None:
    rounds, log = 60, tmp_path / "out.txt"
    expected = undisturbed(tmp_path, layer, {"train": {"rounds": rounds}})
    # No checkpoint falls due: what is saved, the signal has saved.
    config = tiny(tmp_path / "stopped", layer, {"train": {"rounds": rounds}}, checkpoint_every=1000)
    folder = folder_of(config)
    process = start(command, words_of(config), log)
    wait_until(lambda: round_on_disk(folder) > 2, "some rounds")
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 130, log.read_text()
    (stopped,) = re.findall(r"stopped after round (\d+); the same command goes on", log.read_text())
    assert 0 < int(stopped) < rounds

    process = start(command, words_of(config), log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    assert bits(config) == expected and remains(config) == []
    assert f"resumed after round {stopped}" in (folder.path / "log.txt").read_text()


# Done is done ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lr", "rounds", "outcome"), [(0.01, 3, "done"), (1e30, 3, "diverged"), (1e30, 1, "diverged")]
)
def test_an_ended_run_is_not_touched_again(tmp_path: Path, lr: float, rounds: int, outcome: str) -> None:
    layer = {"train": {"lr": lr, "rounds": rounds}}
    config = tiny(tmp_path / "results", STATELESS, layer)
    first = carry_out(config)
    assert first.state == outcome
    before = footprint(tmp_path)
    assert carry_out(config) == first
    # Threads, device and checkpoints are no part of the identity: it is the same run.
    other = tiny(tmp_path / "results", STATELESS, layer, threads=2, checkpoint_every=7)
    assert carry_out(other) == first
    assert footprint(tmp_path) == before
    if outcome == "diverged":
        assert re.search(r"round 0: .*client \d.* not finite", first.message)
        result = result_of(config)
        assert (result.state, result.message, result.final) == (*first, {})
        assert all(record.round == 0 for record in read_records(folder_of(config).path, result))
        assert remains(config) == []
