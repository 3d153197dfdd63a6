"""`run -m` under the launchers that need no cluster: same bits, one report, and what happens when a job stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_runs import DIGITS, LONG, Begun, at_work, bits, holder_of_run, processes
from tiny_runs import FORKS, command, folder_of, tiny, wait_until

from benchmark.cli import sweep
from benchmark.cli.signals import Requeue, stop_on_signals
from benchmark.cli.sweep import Note, carry_out
from benchmark.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """``begun("run", ...)``: the command as a process of its own; the test fails if one of its runs is left at work."""
    with processes(tmp_path) as start:
        yield start


# Same runs, same bits --------------------------------------------------------------------------------------------


def test_jobs_of_their_own_give_the_same_bits(cli: Any, footprint: Any) -> None:
    words = ("run", "-m", *DIGITS, "method=fedavg,fedmr", "seed=1")
    assert cli(*words, "paths.results=basic").code == 0
    code, out, err = cli(*words, "hydra/launcher=submitit_local")
    assert code == 0, err
    here, there = bits(Path("basic")), bits(Path("results"))
    assert len(here) == 2 and here == there
    assert out.splitlines()[-1] == "2 runs: 2 done"
    for name in there:
        assert f"done: results/{name}\n" in out
        assert json.loads((Path("results") / name / "meta.json").read_text())["threads"] == 1
    # The jobs' logs are where the first line says.
    logs = re.search(r"logs: (\S+)/\n", out)
    assert logs and len(list(Path(logs[1]).glob("*_log.out"))) == 2

    before = footprint(Path("results/runs"))
    code, out, err = cli("run", "-m", *DIGITS, "method=fedmr", "seed=1", "hydra/launcher=submitit_local")
    assert (code, out.splitlines()[-1]) == (0, "1 run: 1 done"), err
    assert footprint(Path("results/runs")) == before, "what is done is left alone"


@pytest.mark.parametrize("missing", ["the plugin", "all plugins"])
def test_without_the_plugin(tmp_path: Path, missing: str) -> None:
    """Plain runs compose and run; the launchers that need it say what to install."""
    hide = {
        "the plugin": "import hydra_plugins; hydra_plugins.__path__ = []",
        "all plugins": "sys.modules['hydra_plugins'] = None",
    }[missing]
    code = f"import sys; {hide}; from benchmark.__main__ import main; sys.exit(main(sys.argv[1:]))"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "run", *LONG, "train.rounds=1", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    plain = run("-m", "seed=0,1")
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.endswith("\n2 runs: 2 done\n")
    for name in ("submitit_slurm", "submitit_local"):
        refused = run("-m", "seed=0,1", f"hydra/launcher={name}")
        assert refused.returncode == 2
        assert refused.stderr.startswith(
            f"error: hydra/launcher: came '{name}', whose plugin is not installed."
        )
        assert "pip install hydra-submitit-launcher" in refused.stderr
        assert "Traceback" not in refused.stderr


# Mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-m hydra/launcher=submitit_slrum", r"Did you mean 'submitit_slurm'\? Allowed: basic, "),
        ("-m hydra/launcher=nonsense", r"Allowed: basic, (joblib, )?submitit_local, submitit_slurm\."),
        ("hydra/launcher=submitit_local", r"came 'submitit_local', .*Put -m behind `run`"),
        ("-m hydra/launcher=basic,submitit_local", r"hydra/launcher: came several values .*give one"),
        ("-m hydra/launcher=submitit_local hydra.launcher.partition=x", r"hydra\.launcher\.partition: unknown key\."),
        ("-m hydra/launcher=submitit_local hydra.launcher.timeout_mn=3", r"mean 'hydra\.launcher\.timeout_min'"),
        ("-m hydra/launcher=submitit_local hydra.launcher.timeout_min=long", r"'long' .*could not be converted"),
        ("-m hydra/launcher=submitit_local hydra.launcher.nodes=2", r"hydra\.launcher\.nodes: came 2; .*Allowed: 1"),
        ("-m hydra/launcher=submitit_local train.lr=0.1,-1", r"train\.lr=-1: train\.lr: came -1"),
        ("-m hydra/launcher=submitit_local method=fedavg,fedmt", r"method: came 'fedmt'\. Did you mean 'fedmr'\?"),
        ("-m seed=interval(0,1)", r"seed: came 'seed=interval\(0,1\)'; a sweep takes a list"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_before_anything_begins(cli: Any, words: str, said: str) -> None:
    code, out, err = cli("run", *DIGITS, *words.split())
    assert code == 2
    assert err.startswith("error: ") and re.search(said, err), err
    assert "Traceback" not in out + err
    assert not list(Path().glob("results/runs/*/*")) and not list(Path().glob("results/sweeps/*/jobs/*"))


def test_a_machine_without_slurm(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = cli("run", "-m", *DIGITS, "seed=0,1", "hydra/launcher=submitit_slurm")
    assert (code, out) == (2, "")
    assert err.startswith("error: hydra/launcher: came 'submitit_slurm', but there is no `sbatch`")
    assert err.count("\n") == 1


def test_slurm_that_takes_no_job(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's words, once, and no traceback."""
    for name in ("sbatch", "srun"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpuu' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    words = ("seed=0,1", "hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpuu")
    code, _, err = cli("run", "-m", *DIGITS, *words)
    assert code == 2
    assert err.startswith("error: SLURM takes no job with these settings (hydra.launcher.*): ")
    assert err.count("invalid partition specified: gpuu") == 1
    assert "Nothing was submitted." in err and "Traceback" not in err


# Reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", ["basic", "submitit_local"])
def test_a_run_that_cannot_be(cli: Any, launcher: str) -> None:
    """Seen only when the data are there: it is told, with its words, and the other run is done."""
    words = (*LONG, "train.rounds=2", "train.clients_per_round=99,2", f"hydra/launcher={launcher}")
    code, out, err = cli("run", "-m", *words)
    assert code == 2
    assert out.endswith("\n2 runs: 1 refused, 1 done\n")
    assert re.search(r"refused: results/runs/\S+/seed0: train\.clients_per_round: came 99", err)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("state", "code"),
    [("done", 0), ("diverged", 0), ("failed", 1), ("died", 1), ("not begun", 1), ("refused", 2), ("interrupted", 130)],
)  # fmt: skip
def test_exit_codes(state: str, code: int) -> None:
    assert Note("seed=0", state=state).code == code


def test_a_job_that_is_killed(begun: Begun, tmp_path: Path) -> None:
    """The others are waited for; it is told with its log."""
    words = (*LONG, "train.rounds=1000000,2", "hydra/launcher=submitit_local")
    process = begun("run", "-m", *words)
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 1000000) is not None, "the long run is at work")
    folder = at_work(results, 1000000)
    assert folder is not None
    os.kill(holder_of_run(folder), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert out.endswith("\n2 runs: 1 died, 1 done\n")
    told = re.search(r"^died: (\S+): its job ended without a word; log: (\S+)$", err, re.MULTILINE)
    assert told, err
    assert tmp_path / told[1] == folder
    assert Path(told[2]).exists()
    assert "Traceback" not in err


# Stopping and going on -------------------------------------------------------------------------------------------


def test_a_job_that_submitit_queues_again(begun: Begun, cli: Any, tmp_path: Path) -> None:
    """SIGUSR2: the run saves its state, its job begins again and goes on to the bits of a run that never stopped."""
    process = begun("run", "-m", *LONG, "train.rounds=400", "seed=3", "hydra/launcher=submitit_local")
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 400) is not None, "the run is at work")
    folder = at_work(results, 400)
    assert folder is not None
    first = holder_of_run(folder)
    os.kill(first, signal.SIGUSR2)
    wait_until(lambda: holder_of_run(folder) not in (0, first), "the job works on it again")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.endswith("\n1 run: 1 done\n")
    resumed = re.search(r"resumed after round (\d+)", (folder / "log.txt").read_text())
    assert resumed and 0 < int(resumed[1]) < 400
    assert cli("run", *LONG, "train.rounds=400", "seed=3", "paths.results=basic").code == 0
    assert bits(results) == bits(Path("basic"))


def test_a_sweep_of_jobs_that_is_stopped(begun: Begun, tmp_path: Path) -> None:
    """Its jobs save their state and end; the fixture sees to it that none is left."""
    process = begun("run", "-m", *LONG, "train.rounds=1000000", "hydra/launcher=submitit_local")
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 1000000) is not None, "the run is at work")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out.endswith("\n1 run: 1 interrupted\n")
    assert "the same command goes on" in err and "Traceback" not in err
    assert len(list(results.glob("runs/*/*/checkpoint.pt"))) == 1


def test_a_sweep_in_one_process_that_is_stopped(tmp_path: Path) -> None:
    """The run at work saves its state, those after it are not begun."""
    words = [
        "run",
        "-m",
        *LONG,
        "train.rounds=1000000",
        "seed=0,1,2",
        f"paths.results={tmp_path / 'results'}",
    ]
    process = FORKS.Process(target=command, args=(words, tmp_path / "output"))
    process.start()
    try:
        wait_until(lambda: at_work(tmp_path / "results", 1000000) is not None, "the run is at work")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        process.join(60)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == 130
    said = (tmp_path / "output").read_text()
    assert "\n3 runs: 1 interrupted, 2 not begun\n" in said
    assert len(list(tmp_path.glob("results/runs/*/*"))) == 1


# Inside a job ----------------------------------------------------------------------------------------------------


@pytest.fixture
def in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """This process looks like a job of submitit, whose handler notes the signals that it gets."""
    monkeypatch.setenv("SUBMITIT_FOLDER", str(tmp_path))
    got: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGUSR2, before)


def test_submitit_answers_when_the_state_is_saved(in_a_job: list[int]) -> None:
    with stop_on_signals() as stop, Requeue(stop, grace=1000) as requeue:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stop.is_set() and requeue.asked
        assert in_a_job == []
    requeue.go()
    assert in_a_job == [signal.SIGUSR2]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_submitit_answers_when_the_run_does_not_stop(in_a_job: list[int]) -> None:
    with stop_on_signals() as stop, Requeue(stop, grace=0.01):
        os.kill(os.getpid(), signal.SIGUSR2)
        wait_until(lambda: bool(in_a_job), "submitit's answer")
        assert stop.is_set()
    assert in_a_job == [signal.SIGUSR2]


def test_nothing_is_queued_again_unasked(in_a_job: list[int]) -> None:
    with stop_on_signals() as stop, Requeue(stop, grace=1) as requeue:
        pass
    requeue.go()
    assert in_a_job == [] and not stop.is_set()


def test_a_job_waits_for_a_run_that_is_held(
    tmp_path: Path, in_a_job: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder may be the job itself before it was queued again, on another machine and not yet known to be dead."""
    config = tiny(tmp_path / "results")
    lease = folder_of(config).lease()
    timer = threading.Timer(0.5, lease.release)
    timer.start()
    try:
        assert carry_out(config) == ("done", "")
    finally:
        timer.join()

    config = tiny(tmp_path / "results", seed=1)
    monkeypatch.setattr(sweep, "WAIT_SECONDS", -1.0)
    with folder_of(config).lease(), pytest.raises(ConfigError, match="another process works on it"):
        carry_out(config)


def test_elsewhere_a_run_that_is_held_is_refused_at_once(cli: Any) -> None:
    config = tiny(Path("results"))
    began = time.monotonic()
    with folder_of(config).lease(), pytest.raises(ConfigError, match="another process works on it"):
        carry_out(config)
    assert time.monotonic() - began < sweep.WAIT_SECONDS
