"""A run's folder: whole or refused by name, never half read, whatever happens to the disk."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from command_line import Cli, cli, footprint  # noqa: F401
from rough_ends import remains
from tiny_runs import (
    STATEFUL,
    bits,
    carry_out,
    fill,
    folder_of,
    result_of,
    tiny,
    words_of,
)

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError, UserError
from benchmark.launch.work import Plan, work
from benchmark.runs.folder import RunFolder

PAGE = 4096
"""Bytes of the smallest piece of a small disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB; skips where this process may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs the command mount")
    if done.returncode:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


# A disk that is full -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["without checkpoints", "from a checkpoint"])
def test_a_disk_that_is_full_at_each_stage(
    small_disk: Path, halfway: RunConfig, calm: RunConfig, stopped: bool
) -> None:
    """With one page of room more each time, a run gets a little further and says what it cannot write."""
    config, ends = tiny(small_disk / "results", STATEFUL, checkpoint_every=1 if stopped else 100), []
    folder = folder_of(config)
    for pages in itertools.count():
        shutil.rmtree(small_disk / "results", ignore_errors=True)
        if stopped:
            shutil.copytree(halfway.paths.results, small_disk / "results")
        ballast = fill(small_disk)
        os.truncate(ballast, ballast.stat().st_size - pages * PAGE)
        try:
            carry_out(config)
        except UserError as error:
            ends.append(str(error))
        is_finished = folder.is_finished
        ballast.unlink()
        assert carry_out(config).state == "done"
        assert bits(config) == bits(calm) and remains(config) == [], ends
        assert ("resumed after round" in (folder.path / "log.txt").read_text()) == stopped
        if is_finished:
            break
    assert all("the disk is full" in end and "\n" not in end for end in ends), ends
    assert len(ends) == pages
    for name in (".claim", ".seed0-", "records.jsonl", "checkpoint.pt" if stopped else "result.json"):
        assert any(name in end for end in ends), ends


# Foreign files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["1", "2", "4"])
def test_results_of_another_version_are_refused_and_left(
    tmp_path: Path,
    cli: Cli,  # noqa: F811
    format: str,
) -> None:
    """Formats 1 and 2 had their number in runs/FORMAT."""
    old = tmp_path / "old"
    (old / "runs" / "a-0123456789ab" / "seed0").mkdir(parents=True)
    (old / "runs" / "a-0123456789ab" / "seed0" / "status.json").write_text("{}")
    (old / ("FORMAT" if format == "4" else "runs/FORMAT")).write_text(f"{format}\n")
    before = footprint(old)
    for words in (words_of(tiny(old, STATEFUL)), ["status", f"results={old}"], ["runs", f"results={old}"]):
        answer = cli(*words)
        assert answer.code == 2 and answer.err.count("\n") == 1
        assert f"{old}: got results of format '{format}'; expected 3" in answer.err
    assert footprint(old) == before


def test_a_worker_that_cannot_begin_a_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(RunFolder, "begin", full)
    with pytest.raises(StorageError, match="full"):
        work(Plan(id="one", root=tmp_path, runs=(tiny(tmp_path, STATEFUL),)), lambda: False)


def test_configuration_and_result_are_complete(ended: RunConfig) -> None:
    folder, result = folder_of(ended), result_of(ended)
    written = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert written.pop("hash") == ended.hash
    assert RunConfig.model_validate(written) == ended
    assert (result.origin["torch"], result.origin["threads"]) == (torch.__version__, 1)
    assert {"code", "engine", "data", "partition", "dispatch", "device"} <= result.origin.keys()
    assert {"code", "commit", "dirty", "python", "numpy", "host", "processor"} <= result.made.keys()
    assert {"methods/fedavg.py", "methods/selection/uniform.py", "partitions/iid.py"} <= set(
        result.origin["code"]
    )
