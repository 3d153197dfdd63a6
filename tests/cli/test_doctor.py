"""Each check of ``doctor`` with what it finds, and with its failure planted."""

import os
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import Cli, cli  # noqa: F401
from fake_gpus import fake_gpus

from benchmark.cli.doctor import shown
from benchmark.config.compose import compose, resolve
from benchmark.doctor import CheckResult, checks, machine, papers, services
from benchmark.experiments import estimate
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.runs.cost import operations
from datasets.core.base import Facts


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``programs(sinfo="echo text")``: PATH holds these shell scripts and nothing else."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(**scripts: str) -> None:
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    return put


def states(lines: Iterable[CheckResult]) -> list[str]:
    return [line.state for line in lines]


# Python and the machine ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "needed", "lock", "expected", "named"),
    [
        ("3.11", "torch>=2", "torch==TORCH \\\n", ["ok", "ok"], "1, as in"),
        ("9.9", "torch", "", ["problem", "ok"], "expected 9.9"),
        ("3.11", "no-such-package>=1", "", ["ok", "problem"], "missing: no-such-package"),
        ("3.11", "torch", "torch==0.1 ; sys_platform == 'linux' \\\n", ["ok", "note"], "1 differ"),
        ("3.11", "torch", "torch==0.1\ntorch==TORCH\nother==1\n", ["ok", "ok"], "1, as in"),
    ],
)
def test_python(tmp_path: Path, least: str, needed: str, lock: str, expected: list[str], named: str) -> None:
    project = f'[project]\nrequires-python = ">={least}"\ndependencies = ["{needed}"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "requirements.lock").write_text(lock.replace("TORCH", torch.__version__.partition("+")[0]))
    lines = list(machine.python(tmp_path))
    assert states(lines) == expected
    assert any(named in line.fact for line in lines)


@pytest.mark.parametrize(
    ("quota", "memory", "state", "remedy"),
    [
        ("max 100000", "max", "ok", ""),
        ("250000 100000", "max", "note", "workers=2:"),
        ("400000 100000", "3500000000", "note", "workers=3:"),
        ("50000 100000", "max", "note", "workers=1:"),
    ],
)
def test_cores(tmp_path: Path, monkeypatch: Any, quota: str, memory: str, state: str, remedy: str) -> None:
    """Four cores and 8 GB, less what the control group takes."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4000, "SC_PHYS_PAGES": 2_000_000}.__getitem__)
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    (tmp_path / "memory.max").write_text(f"{memory}\n")
    line = machine.cores(tmp_path)
    assert (line.state, line.remedy.partition(" ")[0]) == (state, remedy)


@pytest.mark.parametrize(
    ("there", "bf16", "device", "state"),
    [
        (False, False, "auto", "note"),
        (False, False, "cuda", "problem"),
        (True, True, "cuda", "ok"),
        (True, False, "cuda", "note"),
    ],
)
def test_gpus(monkeypatch: pytest.MonkeyPatch, there: bool, bf16: bool, device: str, state: str) -> None:
    card = SimpleNamespace(name="Card", total_memory=80e9)
    monkeypatch.setattr(machine, "ask_driver", lambda field: ["570.1"] * there)
    for name, answer in {
        "is_available": there, "device_count": 1, "is_bf16_supported": bf16, "get_device_properties": card,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *index, answer=answer: answer)
    line = machine.gpu(device)
    assert line.state == state and bool(line.remedy) == (state != "ok")
    assert ("Card 80 GB; driver 570.1" in line.fact) == there


@pytest.mark.parametrize(
    ("settings", "there", "state", "remedy"),
    [
        ({}, True, None, ""),  # no run shares a GPU
        ({"workers": 2}, True, "note", "launcher.mps=true"),
        ({"workers": 2}, False, "note", "NVIDIA's driver"),
        ({"workers": 2, "mps": True}, False, "problem", "NVIDIA's driver"),
        ({"workers": 2, "mps": True}, True, "ok", ""),
    ],
)
def test_mps(
    tmp_path: Path, monkeypatch: Any, settings: dict[str, Any], there: bool, state: str | None, remedy: str
) -> None:
    fake_gpus(tmp_path, monkeypatch, None, 1)
    if not there:
        (tmp_path / "driver" / "nvidia-cuda-mps-control").unlink()
    lines = list(machine.mps(SlurmSettings.of({"gpus_per_job": 1, **settings}).on_node))
    assert states(lines) == ([] if state is None else [state])
    assert all(remedy in line.remedy and bool(line.remedy) == (state != "ok") for line in lines)
    assert all(("is missing" in line.fact) != there for line in lines)


def test_bits_of_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.same_bits("cpu").state == "ok"
    conv2d, scales = torch.nn.functional.conv2d, iter((1.0, 1.5))
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda *a, **k: conv2d(*a, **k) * next(scales))
    assert machine.same_bits("cpu").state == "note"


# The results folder -------------------------------------------------------------------------------------------------


def _copies(old: Path, new: Path) -> None:
    shutil.copy(old, new)


def _creates_again(path: Any, flags: int, *rest: Any, _open: Any = os.open, **options: Any) -> int:
    return int(_open(path, flags & ~os.O_EXCL, *rest, **options))


def _full(**values: Any) -> Callable[[Any], Any]:
    return lambda path: SimpleNamespace(**values)


@pytest.mark.parametrize(
    ("target", "fake", "problem", "named"),
    [
        ("os.getpid", os.getpid, [], ""),
        ("os.replace", _copies, ["results"], "no atomic rename"),
        ("os.open", _creates_again, ["results"], "no exclusive creation"),
        ("time.time", lambda: 1e9, ["clock"], "ahead of"),
        ("time.time", lambda: 1e11, ["clock"], "behind"),
        ("shutil.disk_usage", _full(free=5e8), ["space"], "0.5 GB"),
        ("os.statvfs", _full(f_files=10, f_favail=0), ["space"], "0 files"),
        ("os.statvfs", _full(f_files=0, f_favail=0), [], ""),
    ],
)
def test_the_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, fake: Any, problem: list[str], named: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", _full(free=5e9))
    monkeypatch.setattr("os.statvfs", _full(f_files=10**9, f_favail=10**9))
    with monkeypatch.context() as patch:
        patch.setattr(f"benchmark.doctor.machine.{target}", fake)
        lines = list(machine.folder(tmp_path / "results"))
    bad = [line for line in lines if line.state != "ok"]
    assert [line.what for line in bad] == problem
    assert all(named in line.fact and line.remedy for line in bad)
    assert not list(tmp_path.iterdir()), "nothing is left"


def test_a_results_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file in the folder's place, which stops root too")
    (line,) = machine.folder(tmp_path / "taken")
    assert line.state == "problem" and "cannot be written" in line.fact


# Services -----------------------------------------------------------------------------------------------------------

CONFIG = "echo 'AccountingStorageType = accounting_storage/slurmdbd'; echo 'MaxArraySize = 501'"


@pytest.mark.parametrize(
    ("scripts", "state", "named"),
    [
        ({}, "problem", "no `sbatch`"),
        ({"sinfo": "exit 1", "scontrol": CONFIG}, "problem", "does not answer"),
        ({"sinfo": "echo 'gpu*|down|4 nodes|1:00|gpu:8'", "scontrol": CONFIG}, "problem", "gpu*, down, 4 nodes"),
        ({"sinfo": "echo 'gpu|up|4 nodes|1:00|gpu:8'", "scontrol": CONFIG}, "ok", "arrays up to 500; accounting on"),
        ({"sinfo": "echo 'cpu|up|4 nodes|1:00|(null)'", "scontrol": "echo"}, "ok", "up to 1,000; accounting off"),
    ],
)  # fmt: skip
def test_slurm(programs: Any, scripts: dict[str, str], state: str, named: str) -> None:
    programs(**({"sbatch": "exit 1"} if scripts else {}), **scripts)
    line = services.slurm(asked=True)
    assert line.state == state and named in line.fact
    assert services.slurm(asked=False).state == state.replace("problem", "note")


@pytest.mark.parametrize(
    ("reached", "key", "state", "remedy"),
    [
        (True, "k", "ok", ""),
        (True, "", "note", "wandb login"),
        (False, "k", "note", "tracking.mode=offline"),
    ],
)
def test_wandb(tmp_path: Path, monkeypatch: Any, reached: bool, key: str, state: str, remedy: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # without a netrc
    monkeypatch.setenv("WANDB_API_KEY", key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        if not reached:
            server.close()
        port = server.getsockname()[1] if reached else 9
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
        line = services.wandb()
    assert line.state == state and line.remedy.startswith(remedy)


def test_latex_and_browser(programs: Any) -> None:
    assert (services.latex().state, services.chromium().state) == ("note", "note")
    programs(pdflatex="", kpsewhich="[ $1 = booktabs.sty ]", chromium="", chromedriver="")
    line = services.latex()
    assert (line.state, line.fact) == ("note", "no siunitx")
    programs(kpsewhich="exit 0")
    assert (services.latex().state, services.chromium().state) == ("ok", "ok")


# Papers -------------------------------------------------------------------------------------------------------------


def test_hours_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 10 rounds of 360 samples, 1 s each, and no evaluation take an hour; another network less."""

    def block(size: int) -> estimate.RunBlock:
        config = resolve(compose("quick", {"model": {"hidden": 16}, "train": {"rounds": 10}}))
        return estimate.RunBlock("table", config, 1, Facts(10, 10, classes=4, channels=1, size=size), 360, 0)

    # A multiplication and an addition for each weight: pixels x 16 units, 16 x 4 classes.
    assert operations(block(8).run.model, block(8).facts) == 2 * (64 * 16 + 16 * 4) == 2176
    assert operations(block(16).run.model, block(16).facts) == 2 * (256 * 16 + 16 * 4) == 8320
    monkeypatch.setattr(estimate, "blocks", lambda paper, runs: runs)
    monkeypatch.setattr(estimate, "timed", lambda block, _: estimate.Rate(block.facts.size == 16, 0))
    runs: Any = {"one": [block(16)], "two": [block(8)], "three": [block(8), block(16)]}
    _, line = papers.speed(runs, "quick", "cpu")
    assert line.fact.startswith("one 1.00, two 0.26, three 1.26:") and line.state == "ok"
    # 10,000 hours of 365.25 days of 24 hours each.
    speed, line = papers.speed({"one": [replace(block(16), runs=10_000)]}, "quick", "cpu")
    assert line.fact.startswith("one 1.1 years:") and (line.state, line.remedy[:15]) == (
        "note",
        "That needs GPUs",
    )
    assert "load of the machine" in speed.fact


def test_data_of_a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    runs = papers.runs_of(checks.TableQuery(table=1, preset="paper"), tmp_path)
    assert sorted(runs) == ["feddiverse", "fedld", "fedmr", "fedsdc"]
    line = papers.data("fedld", runs["fedld"], "paper", asked=True)
    assert line.state == "problem" and "missing: retina" in line.fact
    assert "plan paper=fedld table=1 preset=paper" in line.remedy
    assert papers.data("fedld", runs["fedld"], "paper", asked=False).state == "note"
    line = papers.data("fedmr", runs["fedmr"], "paper", asked=True)
    assert line.state == "note" and line.fact.startswith("download by themselves: ")


# The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, programs: Any, tmp_path: Path) -> None:
    """Nothing is timed, and there is no other program."""
    monkeypatch.setattr(estimate, "timed", lambda *_: estimate.Rate(1e-3, 0))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "raw"))
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("words", "code"),
    [("", 0), ("paper=fedld", 1), ("preset=paper paper=fedmr", 0), ("launcher=slurm", 1), ("device=cuda", 1)],
)
def test_one_screen_and_the_exit_code(quick: None, cli: Cli, words: str, code: int) -> None:  # noqa: F811
    answer = cli("doctor", *words.split())
    assert answer.code == code, answer
    lines = answer.out.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    assert lines[-1].startswith("0 problems") == (code == 0)
    assert not Path("results").exists()


def test_a_check_that_breaks_is_a_problem(quick: None, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def broken(device: str) -> CheckResult:
        raise RuntimeError("CUDA driver:\n  initialization error")

    monkeypatch.setattr(machine, "gpu", broken)
    answer = cli("doctor", "preset=quick", "paper=fedld")
    assert answer.code == 1
    assert "problem RuntimeError: CUDA driver: initialization error" in answer.out


def test_a_line_has_its_remedy_below() -> None:
    assert shown(CheckResult("GPU", "note", "none", "get one")).splitlines() == [
        "GPU        note    none",
        f"{' ' * 16}-> get one",
    ]


@pytest.mark.parametrize("works", [True, False])
def test_a_compute_node(quick: None, programs: Any, tmp_path: Path, monkeypatch: Any, works: bool) -> None:
    """The job runs on the node, here in this process, and its lines come back by a file."""
    programs(sbatch="")
    submitted = []

    def submit(queue: SlurmQueue, name: str, jobs: Any) -> str:
        submitted.append((name, queue.settings.time))
        if works:
            jobs[0]()
        return "7"

    monkeypatch.setattr(SlurmQueue, "submit", submit)
    monkeypatch.setattr(SlurmQueue, "tasks", staticmethod(dict))
    options = checks.Wanted(results=tmp_path / "results", paper="fedld", preset="quick")
    lines = checks.lines_of_node(SlurmSettings.of({"poll": 0.01}), options)
    (name, minutes), *more = submitted
    assert name.startswith("fedtables-doctor-") and minutes == 5 and not more
    assert lines[0].what == "node" and states(lines)[0] == ("ok" if works else "problem")
    assert (len(lines) > 10) == works
    assert not list(tmp_path.rglob("*.found"))
