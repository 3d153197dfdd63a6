"""A run ends in the same bits however often and however rudely it is stopped."""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import footprint
from processes import wait_until
from tiny_runs import (
    FORKS,
    STATEFUL,
    STATELESS,
    Gate,
    bits,
    command,
    folder_of,
    round_on_disk,
    status_of,
    tiny,
    words_of,
)

from benchmark.__main__ import main
from benchmark.config.schema import RunConfig
from benchmark.runs import checkpoint
from benchmark.runs.execute import execute
from benchmark.runs.writer import RunWriter

KILLS = 20


def fork(config: RunConfig, *progress: Gate) -> Any:
    """Carry out the run in another process."""
    process = FORKS.Process(target=execute, args=(config, *progress))
    process.start()
    return process


def undisturbed(tmp_path: Path, *layers: Mapping[str, Any], **runtime: Any) -> tuple[bytes, str, dict]:
    calm = tiny(tmp_path / "calm", *layers, **runtime)
    assert execute(calm)[0] == "done"
    return bits(calm)


# kill -9 -----------------------------------------------------------------------------------------------------------


def test_killed_at_20_random_moments(tmp_path: Path) -> None:
    rounds = 60
    calm, config = (
        tiny(tmp_path / name, STATEFUL, {"train": {"rounds": rounds}}, checkpoint_every=2)
        for name in ("calm", "killed")
    )
    times: list[float] = []
    assert execute(calm, lambda *_: times.append(time.perf_counter()))[0] == "done"
    one_round = (times[-1] - times[0]) / rounds

    folder, rng, seen = folder_of(config), np.random.default_rng(20), []
    for kill in range(KILLS):
        # Goals spread over what is left. One that is already reached gives a kill somewhere between the start of the
        # process and its first rounds. The gate keeps a fast process from ending before a slow test kills it.
        before = max(0, round_on_disk(folder))
        goal = before + int(rng.integers(0, 2 + (rounds - before) // (KILLS - kill + 2)))
        goal = max(before, min(goal, rounds - 4))
        process = fork(config, Gate(min(goal + 4, rounds - 1)))
        wait_until(lambda goal=goal: round_on_disk(folder) >= goal or goal == 0, f"round {goal}")
        time.sleep(rng.uniform(0, 3 * one_round) if goal > before else rng.uniform(0, 0.3))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        # Killed before it has written its name into its lease, it counts as just begun for some seconds.
        wait_until(lambda: not folder.is_held(), "the lease of a killed process to end")
        seen.append(round_on_disk(folder))
    assert len(set(seen)) >= KILLS // 2, f"the kills hit the rounds {seen} only"

    assert execute(config)[0] == "done"
    assert bits(config) == bits(calm)
    assert (folder.path / "log.txt").read_text().count("resumed after round") >= KILLS // 2
    assert not list(folder.path.glob(".*")), "what killed processes left was not removed"


class Killed(BaseException):
    """Stands for the end of the process: no handler of ours may catch it."""


class Reaper:
    """Ends the run at the n-th step on its way to the disk, before or after the step or in its middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.last = ""
        replace, append, clean = Path.replace, RunWriter.append_records, RunWriter.clean

        def killing_replace(path: Path, target: Path) -> Path:
            self.step(f"before {target.name}")
            done = replace(path, target)
            self.step(f"after {target.name}")
            return done

        def killing_append(writer: RunWriter, records: Any) -> None:
            if self.left == 0:
                with writer.folder.records_path.open("ab") as stream:
                    stream.write(b'{"round": 1, "spl')
            self.step("within records")
            append(writer, records)
            self.step("after records")

        def killing_clean(writer: RunWriter, keep_checkpoint: bool) -> None:
            self.step("before clean")
            clean(writer, keep_checkpoint)
            self.step("after clean")

        monkeypatch.setattr(Path, "replace", killing_replace)
        monkeypatch.setattr(RunWriter, "append_records", killing_append)
        monkeypatch.setattr(RunWriter, "clean", killing_clean)

    def step(self, what: str) -> None:
        """One step more."""
        self.left -= 1
        if self.left == -1:
            self.last = what
            raise Killed(what)


@pytest.mark.parametrize("keep", [False, True], ids=["", "keep_checkpoint"])
def test_killed_at_each_step_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    two = {"train": {"rounds": 2}}
    expected = undisturbed(tmp_path, STATEFUL, two, keep_checkpoint=keep)
    config = tiny(tmp_path / "killed", STATEFUL, two, keep_checkpoint=keep)
    reaper = Reaper(monkeypatch)
    steps: list[str] = []
    while True:
        reaper.left = len(steps)
        try:
            execute(config)
        except Killed as death:
            steps.append(str(death))
        else:
            break
        reaper.left = -1
        assert execute(config)[0] == "done", steps[-1]
        assert bits(config) == expected, steps[-1]
        shutil.rmtree(tmp_path / "killed")
    # The first round is checkpointed; the start, every round and what is kept are recorded.
    assert steps.count("before checkpoint.pt") == (2 if keep else 1)
    assert steps.count("within records") == (4 if keep else 3)
    assert {
        "before config.yaml",
        "after status.1.json",
        "before records.jsonl",
        "after status.json",
        "after clean",
    } <= set(steps)
    assert folder_of(config).checkpoint_path.exists() == keep


# Signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "layer"),
    [
        (signal.SIGTERM, STATELESS),
        (signal.SIGINT, STATEFUL),
        (signal.SIGHUP, STATELESS),
        (signal.SIGQUIT, STATELESS),
    ],
)
def test_a_signal_saves_the_state(tmp_path: Path, layer: dict[str, Any], number: signal.Signals) -> None:
    rounds, log = 60, tmp_path / "out.txt"
    expected = undisturbed(tmp_path, layer, {"train": {"rounds": rounds}})
    # No checkpoint falls due: what is saved, the signal has saved.
    config = tiny(tmp_path / "stopped", layer, {"train": {"rounds": rounds}}, checkpoint_every=1000)
    folder = folder_of(config)
    process = FORKS.Process(target=command, args=(words_of(config), log))
    process.start()
    wait_until(lambda: folder.records_size() > 3000, "some rounds")
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 130, log.read_text()
    status = status_of(config)
    assert status.state == "interrupted"
    assert 0 < status.round < rounds
    assert folder.checkpoint_path.exists()
    assert "interrupted: " in log.read_text()
    assert "same command" in log.read_text()

    process = FORKS.Process(target=command, args=(words_of(config), log))
    process.start()
    process.join()
    assert process.exitcode == 0, log.read_text()
    assert bits(config) == expected
    assert f"resumed after round {status.round}" in (folder.path / "log.txt").read_text()


def test_a_stop_between_two_clients_keeps_the_finished_rounds(tmp_path: Path) -> None:
    layer = STATEFUL | {
        "dataset": {"options": {"channels": 3}},
        "model": "tiny_cnn",
        "train": {"augment": "blood", "clients_per_round": 2},
    }
    expected = undisturbed(tmp_path, layer)
    config = tiny(tmp_path / "stopped", layer)
    asked = iter([False] * 3 + [True] * 100)  # two clients a round and one look after each: within round 2
    assert execute(config, stop=lambda: next(asked))[0] == "interrupted"
    assert status_of(config).round == 1
    assert execute(config)[0] == "done"
    assert bits(config) == expected


def test_seconds_of_all_processes_count(tmp_path: Path) -> None:
    """Stopped after two rounds; then its checkpoint says that they took 1,000 seconds."""
    config = tiny(tmp_path / "results", STATELESS, {"train": {"rounds": 4}})
    seen: list[int] = []
    assert execute(config, lambda n, *_: seen.append(n), lambda: 2 in seen)[0] == "interrupted"
    folder = folder_of(config)
    saved = checkpoint.load(folder.checkpoint_path, config)
    assert saved is not None and saved["state"]["round"] == 2 and 0 < saved["seconds"] < 1000
    checkpoint.save(folder.checkpoint_path, saved | {"seconds": 1000.0})
    assert execute(config)[0] == "done"
    assert 1000 < status_of(config).seconds < 2000


# Done is done, and one at a time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lr", "rounds", "outcome"), [(0.01, 3, "done"), (1e30, 3, "diverged"), (1e30, 1, "diverged")]
)
def test_an_ended_run_is_not_touched_again(tmp_path: Path, lr: float, rounds: int, outcome: str) -> None:
    layer = {"train": {"lr": lr, "rounds": rounds}}
    config = tiny(tmp_path / "results", STATELESS, layer)
    first = execute(config)
    assert first[0] == outcome
    before = footprint(tmp_path)
    assert execute(config) == first
    # Threads, device and checkpoints are no part of the identity: it is the same run.
    other = tiny(tmp_path / "results", STATELESS, layer, threads=2, checkpoint_every=7)
    assert execute(other) == first
    assert footprint(tmp_path) == before
    if outcome == "diverged":
        assert re.search(r"round 0: .*client \d.* not finite", first[1])
        folder = folder_of(config)
        status = status_of(config)
        assert (status.state, status.message, status.final) == (first[0], first[1], {})
        assert all(record.round == 0 for record in folder.read_records())
        assert not folder.checkpoint_path.exists()


def test_one_at_a_time_and_a_killed_process_holds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    expected = undisturbed(tmp_path, STATELESS)
    config = tiny(tmp_path / "shared", STATELESS)
    folder = folder_of(config)
    first = fork(config, Gate(2))
    wait_until(lambda: round_on_disk(folder) >= 1, "the first round")
    assert main(words_of(config)) == 2
    error = capsys.readouterr().err
    assert "another process works on it" in error and str(first.pid) in error
    assert execute(config)[0] == "running"
    assert folder.is_held()
    first.kill()
    first.join()
    assert not folder.is_held()
    assert execute(config)[0] == "done"
    assert bits(config) == expected
    assert (folder.path / "log.txt").read_text().count("start:") == 2
