"""A run's folder: whole or refused by name, never half read, whatever happens to the disk."""

import errno
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_line import Cli, cli, footprint  # noqa: F401
from rough_ends import remains, start
from tiny_runs import (
    STATEFUL,
    bits,
    carry_out,
    command,
    fill,
    folder_of,
    result_of,
    tiny,
    words_of,
)

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError, UserError
from benchmark.runs import checkpoint
from benchmark.runs.files import write_atomically
from benchmark.runs.folder import ResultsFolder

PAGE = 4096
"""Bytes of the smallest piece of a small disk."""


def fail_with(error: int | Exception) -> Callable[..., Any]:
    """A function that raises the error, or the system's error of that number."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(error, os.strerror(error)) if isinstance(error, int) else error

    return fail


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


# Writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "number", "said"),
    [
        ("benchmark.runs.files.os.fsync", errno.ENOSPC, "disk is full"),
        ("benchmark.runs.files.os.fsync", errno.EDQUOT, "quota"),
        ("benchmark.runs.files.os.fsync", errno.EIO, "Input/output error"),
        ("pathlib.Path.open", errno.EROFS, "Read-only file system"),
        ("pathlib.Path.replace", errno.EACCES, "Permission denied"),
    ],
)
def test_what_cannot_be_written_leaves_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int, said: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(where, fail_with(number))
        for write in (lambda: write_atomically(path, b"new"), lambda: checkpoint.save(path, {"hash": "new"})):
            with pytest.raises(StorageError, match=said) as error:
                write()
            assert str(path) in str(error.value)
    with pytest.raises(RuntimeError, match="not of the disk"):
        write_atomically(path, fail_with(RuntimeError("not of the disk")))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "ab")
    for name in (f".file.{os.getpid()}.tmp", f".file.{os.getpid()}.ab.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "other")
    with pytest.raises(StorageError, match="File exists"):
        write_atomically(tmp_path / "file", b"new")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new" and not (tmp_path / "other").exists()


# A disk that is full -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("known", [True, False], ids=["known folder", "new folder"])
def test_a_command_on_a_full_disk_says_so(small_disk: Path, tmp_path: Path, known: bool) -> None:
    config, output = tiny(small_disk / "results", STATEFUL), tmp_path / "out.txt"
    if known:
        ResultsFolder(small_disk / "results").open()
    ballast = fill(small_disk)
    process = start(command, words_of(config), output)
    process.join()
    printed = output.read_text()
    assert process.exitcode == 2, printed
    assert "the disk is full" in printed and "Traceback" not in printed
    ballast.unlink()
    assert carry_out(config).state == "done"


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


def test_a_configuration_that_cannot_be_read(ended: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(ended)
    assert folder.read_config() == ended
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_text", fail_with(errno.EIO))
        with pytest.raises(StorageError, match=r"config\.yaml cannot be read \(Input/output"):
            folder.read_config()
    for content in ("", "seed: 1\n", "hash: 0123456\n", "words\n", "hash: [", "- 1\n"):
        (folder.path / "config.yaml").write_text(content)
        with pytest.raises(StorageError, match=r"config\.yaml"):
            folder.read_config()


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


def test_a_run_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    config = tiny(tmp_path / "results")
    folder = folder_of(config)
    folder.path.parent.mkdir(parents=True)
    folder.path.write_text("mine")
    with pytest.raises(ValueError, match=str(folder.path.parent)):
        carry_out(config)
    assert folder.path.read_text() == "mine"


def test_results_that_only_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Permissions mean nothing to root, so the system's answer is made up.
    monkeypatch.setattr(Path, "mkdir", fail_with(errno.EACCES))
    with pytest.raises(StorageError, match=r"Permission denied.*Choose a folder that can be written"):
        ResultsFolder(tmp_path / "results").open()
