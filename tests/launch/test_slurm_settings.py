"""What goes with a submission to a cluster: packing and settings."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_queue import KEYS, tasks

from benchmark.cli.options import group_settings
from benchmark.config.compose import group_names
from benchmark.errors import ConfigError
from benchmark.launch.slurm.packing import check_time, pack_tasks
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings

# Packing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        # 70 % of 10 minutes are 420 s: four runs of 100 s, or twice as many side by side. Run 8 takes longer.
        ({}, [4, 4, 1, 3]),
        ({"workers": 2}, [8, 1, 3]),
        ({"gpus_per_job": 2}, [8, 1, 3]),
        ({"runs_per_job": 5}, [5, 5, 2]),
        ({"runs_per_job": 1}, [1] * 12),
    ],
)
def test_runs_fill_the_time(settings: dict[str, Any], sizes: list[int]) -> None:
    seconds = dict.fromkeys(KEYS, 100.0) | {KEYS[8]: 9000.0}
    packs = pack_tasks(tasks(), lambda task: seconds[task.key], SlurmSettings.of({"time": 10, **settings}))
    assert [len(pack) for pack in packs] == sizes
    assert [task.key for pack in packs for task in pack] == KEYS


# Time --------------------------------------------------------------------------------------------------------------


def test_a_time_shorter_than_from_one_checkpoint_to_the_next() -> None:
    """Ten minutes less 2 x 60 s are 480 s; a tenth of 5,000 s takes 500."""
    settings = SlurmSettings.of({"time": 10, "signal_delay": 60, "grace": 60})
    seconds = {"long": 5000.0, "short": 100.0, "unknown": None}
    check_time(settings, {"short": 1.0, "unknown": 1.0}, seconds.get)
    with pytest.raises(ConfigError, match=r"time: got 10; .* least 11 .*long took 500 s.*checkpoint_every"):
        check_time(settings, {"long": 0.1, "short": 1.0}, seconds.get)


# Settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in group_names("launcher") if name.startswith("slurm_")])
def test_files_for_kinds_of_clusters(name: str) -> None:
    """Each is valid, and holds what differs."""
    chosen = SlurmSettings.of(group_settings("launcher", name, {"time": 90}))
    assert chosen.time == 90 and chosen != SlurmSettings(time=90)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partion": "gpu"}, r"launcher\.partion: .*'partition'"),
        ({"time": 0}, r"launcher\.time: got 0"),
        ({"gpu_gb_per_run": 4}, r"launcher\.gpu_gb_per_run: got 4.*gpus_per_job.*cpus_per_job"),
        (
            {"account": "a\n#SBATCH -w n"},
            r"launcher: got \{'account': 'a\\n#SBATCH -w n'\}; expected text without",
        ),
        ({"slurm": {"comment": "a\x1b"}}, r"launcher: got \{'comment': 'a\\x1b'\}; expected text without"),
        ({"time": 3}, r"launcher\.time: got 3.*signal_delay.*grace"),
    ],
)
def test_settings_that_are_not_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SlurmSettings.of(values)


def test_gpus_are_asked_for_in_one_way() -> None:
    assert SlurmSettings.of({"gpus_per_job": 2}).place == {"gpus_per_node": 2}
    assert SlurmSettings.of({"gpus_per_job": 2, "slurm": {"gres": "gpu:a100:2"}}).place == {}


@pytest.mark.parametrize("name", ["plain", "a 'b\" $HOME; $(exit 3) `exit 4` &"])
def test_the_folders_of_a_job_are_quoted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is run by a shell, with a Python that prints its arguments and two variables."""
    tools, checkout = tmp_path / "tools", tmp_path / name
    for folder in (tools, checkout):
        folder.mkdir()
    python = checkout / "python"
    scripts = {
        tools / "sbatch": f'cp "$1" {tmp_path}/script; echo Submitted batch job 1',
        tools / "srun": 'while [ "$1" != -u ] && [ "$1" != "$PYTHON" ]; do shift; done; "$@"',
        python: f'printf "%s\\n" "$PYTHONPATH" "$FEDTABLES_PATH" "$4" >{tmp_path}/out',
    }
    for path, line in scripts.items():
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON", str(python))
    monkeypatch.setenv("PYTHONPATH", "/before")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("benchmark.launch.slurm.queue.ROOT", checkout)
    monkeypatch.setattr("benchmark.launch.slurm.queue.ROOTS", [tmp_path / "mine", checkout])
    SlurmQueue(SlurmSettings(), checkout / "jobs").submit("batch", [print])
    subprocess.run(["bash", tmp_path / "script"], check=True)
    assert (tmp_path / "out").read_text() == (
        f"{checkout}:/before\n{tmp_path}/mine:{checkout}\n{checkout}/jobs/batch\n"
    )


@pytest.mark.parametrize(("checkout", "results"), [("/a:b", "/c"), ("/a", "/50%/c"), ("/a", "/b\\c")])
def test_folders_that_slurm_misreads(checkout: str, results: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("benchmark.launch.slurm.queue.ROOTS", [Path(checkout)])
    with pytest.raises(ConfigError, match=r"launcher=slurm: got the folder .*; expected one without '"):
        SlurmQueue(SlurmSettings(), Path(results))


def test_no_cluster_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sbatch.*launcher=local"):
        SlurmQueue(SlurmSettings(), tmp_path)
