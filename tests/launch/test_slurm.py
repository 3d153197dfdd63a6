"""What is submitted to a cluster, and what is not: against a queue that does as it is told."""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import cli  # noqa: F401
from fake_queue import FakeQueue, fake_queue
from submitit.helpers import DelayedSubmission
from tiny_runs import FAKE, carry_out, tiny

from benchmark import code
from benchmark.commands.options import launcher_settings
from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.launch import slurm
from benchmark.launch.settings import SlurmSettings
from benchmark.launch.slurm import Task, name_of
from benchmark.launch.work import Plan
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.result_files import record_lines

SWEEP = ("run", "-m", "dataset=fake", "partition.clients=2,3,4", "train.rounds=1", "launcher=slurm")
SWEEP += tuple(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items())
DETACHED = (*SWEEP, "launcher.detach=true")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: Any) -> FakeQueue:
    return fake_queue(tmp_path / "slurm", monkeypatch)


# What is submitted -------------------------------------------------------------------------------------------------


def test_one_array_of_identical_tasks(cli: Any, queue: FakeQueue, tmp_path: Path) -> None:  # noqa: F811
    given = ("time=90", "mem=8GB", "workers=2", "threads=3", "max_parallel=5", "partition=gpu")
    more = ("setup=[module load cuda/12.4,ulimit -c 0]", "slurm={exclude: node1}")
    exit_code, out, err = cli(*DETACHED, *(f"launcher.{word}" for word in (*given, *more)))
    assert (exit_code, err) == (0, "")
    (script,), options, results = queue.scripts, queue.options, tmp_path / "results"
    (folder,) = (results / "launches").iterdir()
    assert f"job 70: 2 tasks for 3 runs; logs: {folder}/" in out and "the same command shows how far" in out
    assert options["array"] == "0-1%2", "two runs at a time in a task"
    assert (options["time"], options["mem"], options["partition"]) == ("90", "8GB", "gpu")
    assert (options["cpus-per-task"], options["exclude"]) == ("6", "node1")
    assert options["job-name"] == name_of(results) and options["signal"] == "USR2@120"
    plan = json.loads((folder / "plan.json").read_bytes())
    snapshot = results / "code" / plan["code"]
    assert (snapshot / "0/benchmark/launch/work.py").is_file()
    lines = script.splitlines()
    setup = [
        "module load cuda/12.4",
        "ulimit -c 0",
        f'export PYTHONPATH={snapshot}/0"${{PYTHONPATH:+:$PYTHONPATH}}"',
        "export FEDTABLES_PATH=''",
    ]
    assert lines[lines.index(setup[0]) :][:4] == setup
    assert len(plan["runs"]) == 3 and {run["paths"]["results"] for run in plan["runs"]} == {str(results)}


def test_what_is_queued_is_not_submitted_twice(cli: Any, queue: FakeQueue, monkeypatch: Any) -> None:  # noqa: F811
    """Of a longer list only the new run is submitted; with other code nothing is."""
    assert cli(*DETACHED).code == 0
    assert queue.options["array"] == "0-2%3"
    queue.hold("70", 3)
    assert cli(*DETACHED).code == 0 and len(queue.scripts) == 1
    longer = [word.replace("=2,3,4", "=2,3,4,5") for word in DETACHED]
    assert "job 71: 1 tasks for 1 runs" in cli(*longer).out
    assert ", 3 tasks waiting" in cli("status").out.replace("; ", ", ")
    with monkeypatch.context() as patch:
        patch.setattr(code, "DIGITS", 15)  # names the snapshot otherwise, as an edit does
        exit_code, _, err = cli(*DETACHED)
    assert exit_code == 2 and "job 70 carries out 3 of these runs with other code" in err
    assert "`scancel 70`" in err and len(queue.scripts) == 2
    queue.hold("70", 0)
    assert cli(*DETACHED, "launcher.max_parallel=2").code == 0
    assert len(queue.scripts) == 3 and queue.options["array"] == "0-1%2", "what was lost is submitted again"


def test_tasks_that_are_lost_three_times_end_the_command(cli: Any, queue: FakeQueue) -> None:  # noqa: F811
    exit_code, out, err = cli(*SWEEP, "launcher.poll=0.01")
    assert exit_code == 1 and err.startswith("the tasks ended, but no round did; logs: ")
    assert "0/3 runs in " in out and len(queue.scripts) == 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "Job violates policy (QOSMaxSubmitJobPerUserLimit)",
            r"does not take the tasks: .*max_parallel lower",
        ),
        ("invalid partition specified: middle", r"does not take the tasks: .*middle.* Nothing was submitted"),
    ],
)
def test_what_slurm_does_not_take(
    cli: Any,  # noqa: F811
    queue: FakeQueue,
    said: str,
    message: str,
) -> None:
    queue.refuse(f"sbatch: error: {said}")
    exit_code, out, err = cli(*SWEEP)
    assert exit_code == 2 and err.count("error: SLURM ") == 1 and "Traceback" not in out + err
    assert re.search(message, err), err


def test_a_folder_whose_name_a_shell_reads(
    cli: Any,  # noqa: F811
    queue: FakeQueue,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    folder = tmp_path / "a 'b\" $HOME; $(exit 3) `exit 4` &"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert cli(*DETACHED).code == 0
    (line,) = (line for line in queue.scripts[0].splitlines() if line.startswith("export PYTHONPATH"))
    assert shlex.split(line)[1].startswith(f"PYTHONPATH={folder}/results/code/")


# The task on the node ----------------------------------------------------------------------------------------------


def test_a_task_in_which_no_round_ended_is_not_queued_again(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    settings = SlurmSettings.model_validate({"time": 10, "signal_delay": 60, "grace": 1})
    plan = Plan(id="one", root=tmp_path, runs=(config,))
    plan.write()
    task = Task(plan.path, settings, slurm.Workers(plan, settings.on_node), began=time.monotonic() - 60)
    assert isinstance(task.checkpoint(), DelayedSubmission), "preempted after a minute"
    task.began -= 400
    with pytest.raises(
        RuntimeError, match=r"no run finished one round before .* \(540 s\).*Raise launcher.time"
    ):
        task.checkpoint()
    attempt = ResultsFolder(tmp_path).run(config.key).begin(config, "one")
    attempt.append(record_lines([Record(1, "train", "all", "loss", 1.0)]))
    assert isinstance(task.checkpoint(), DelayedSubmission)
    carry_out(config)
    assert isinstance(task.checkpoint(), DelayedSubmission)


# Settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partion": "gpu"}, r"launcher\.partion: .*'partition'"),
        ({"time": 0}, r"launcher\.time: got 0"),
        ({"time": 3}, r"launcher\.time: got 3.*signal_delay.*grace"),
    ],
)
def test_settings_that_are_not_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        launcher_settings("slurm", values)


def test_gpus_are_asked_for_in_one_way() -> None:
    assert SlurmSettings.model_validate({"gpus_per_job": 2}).asked == {"gpus_per_node": 2}
    assert SlurmSettings.model_validate({"gpus_per_job": 2, "slurm": {"gres": "gpu:a100:2"}}).asked == {}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), None),  # as quick and small
        (("preset=paper",), "1"),
        (("preset=paper", "device=cpu"), None),
        (("device=cuda",), "1"),
        (("preset=paper", "launcher.gpus_per_job=0"), None),
        (("launcher.gpus_per_job=2",), "2"),
    ],
)
def test_gpus_of_a_task(cli: Any, queue: FakeQueue, words: tuple[str, ...], asked: str | None) -> None:  # noqa: F811
    exit_code, out, _ = cli(*DETACHED, *words)
    assert exit_code == 0 and queue.options.get("gpus-per-node") == asked
    number = asked or "no"
    assert f"each task asks for {number} GPU{'s' * (number == '2')} (launcher.gpus_per_job), " in out


def test_the_request_in_words() -> None:
    words = "1 GPU (launcher.gpus_per_job), 1 core (launcher.cpus_per_job), default memory (launcher.mem), "
    assert SlurmSettings(gpus_per_job=1).request == f"{words}120 minutes (launcher.time)"
    words = "no GPU (launcher.gpus_per_job), 8 cores (launcher.cpus_per_job), 8GB memory (launcher.mem), "
    given = SlurmSettings(gpus_per_job=0, workers=4, threads=2, mem="8GB", time=30)
    assert given.request == f"{words}30 minutes (launcher.time)"


def test_a_task_without_the_gpu_that_it_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    """It ends before it reads the plan."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"launcher\.gpus_per_job: .* sees none"):
        Task(tmp_path / "none.json", SlurmSettings.model_validate({"gpus_per_job": 1}))()


def test_a_folder_that_slurm_would_not_find_again(cli: Any, queue: FakeQueue, tmp_path: Path) -> None:  # noqa: F811
    """It replaces ``%`` and what follows in the names of logs."""
    exit_code, _, err = cli(*DETACHED, f"results={tmp_path}/50%")
    assert exit_code == 2 and "launcher=slurm: got the folder" in err and not queue.scripts


def test_no_cluster_here(cli: Any, tmp_path: Path, monkeypatch: Any) -> None:  # noqa: F811
    monkeypatch.setenv("PATH", str(tmp_path))
    exit_code, _, err = cli(*SWEEP)
    assert exit_code == 2 and "sbatch" in err and "launcher=local" in err
