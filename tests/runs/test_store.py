"""A run's folder: whole or refused by name, never half read, whatever happens to the disk."""

import errno
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from tiny_runs import (
    FORKS,
    STATEFUL,
    bits,
    command,
    fill,
    folder_of,
    interrupted,
    status_of,
    tiny,
    words_of,
)

from benchmark import digests
from benchmark.config.schema import FORMAT, RunConfig
from benchmark.errors import StorageError
from benchmark.runs import checkpoint
from benchmark.runs.execute import execute
from benchmark.runs.files import write_atomically
from benchmark.runs.store import DamagedError, ResultsFolder, RunFolder


def fail_with(error: int | Exception) -> Callable[..., Any]:
    """A function that raises the error, or the system's error of that number."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(error, os.strerror(error)) if isinstance(error, int) else error

    return fail


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; skips where this process may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
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
        ("pathlib.Path.open", errno.ENOSPC, "disk is full"),
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
        with pytest.raises(StorageError, match=said) as error:
            write_atomically(path, b"new")
    assert str(path) in str(error.value)
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


def test_a_configuration_that_cannot_be_read(ended: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_text", fail_with(errno.EIO))
        with pytest.raises(StorageError, match=r"config\.yaml cannot be read \(Input/output") as error:
            folder_of(ended).read_config()
    assert not isinstance(error.value, DamagedError)


def test_a_checkpoint_that_does_not_fit(halfway: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(halfway)
    before = folder.checkpoint_path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("benchmark.runs.files.os.fsync", fail_with(errno.ENOSPC))
        with pytest.raises(StorageError, match="the disk is full"):
            checkpoint.save(folder.checkpoint_path, {"hash": "other"})
    assert folder.checkpoint_path.read_bytes() == before
    with pytest.raises(RuntimeError, match="not of the disk"):
        write_atomically(folder.checkpoint_path, fail_with(RuntimeError("not of the disk")))


# A disk that is full -----------------------------------------------------------------------------------------------


def assert_disk_is_full(config: RunConfig, folder: Path) -> None:
    """The command in another process says so, and nothing else."""
    output = folder / "out.txt"
    process = FORKS.Process(target=command, args=(words_of(config), output))
    process.start()
    process.join()
    printed = output.read_text()
    assert process.exitcode == 2, printed
    assert "the disk is full" in printed and "Traceback" not in printed


@pytest.mark.parametrize("room", [False, True], ids=["no room", "room for small files"])
def test_full_disk(small_disk: Path, tmp_path: Path, calm: RunConfig, room: bool) -> None:
    """With some room only the checkpoint does not fit: it fails in the middle of writing that."""
    config = interrupted(small_disk / "results")
    folder = folder_of(config)
    before = folder.checkpoint_path.read_bytes()
    ballast = fill(small_disk)
    if room:
        os.truncate(ballast, ballast.stat().st_size - max(32768, len(before) // 2))
    assert_disk_is_full(config, tmp_path)
    assert folder.checkpoint_path.read_bytes() == before
    assert not [path for path in folder.path.rglob("*.tmp") if path.stat().st_size], "leftovers take room"
    if room:
        status = status_of(config)
        assert status.state == "failed" and "checkpoint.pt: the disk is full" in status.message
    ballast.unlink()
    assert execute(config)[0] == "done"
    assert bits(config) == bits(calm)


@pytest.mark.parametrize("known", [True, False], ids=["known folder", "new folder"])
def test_full_disk_before_the_first_byte(small_disk: Path, tmp_path: Path, known: bool) -> None:
    config = tiny(small_disk / "results", STATEFUL)
    if known:
        ResultsFolder(small_disk / "results").open()
    ballast = fill(small_disk)
    assert_disk_is_full(config, tmp_path)
    ballast.unlink()
    assert execute(config)[0] == "done"


# Damaged and foreign files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [FORMAT + 1, None])
def test_another_format_is_named(ended: RunConfig, format: int | None) -> None:
    folder = folder_of(ended)
    changed = json.loads(folder.result_path.read_text()) | {"format": format}
    folder.result_path.write_text(json.dumps(changed | {"digest": digests.of(changed)}))
    with pytest.raises(StorageError, match=f"got format {format}; expected {FORMAT}") as error:
        execute(ended)
    assert str(folder.path) in str(error.value)


@pytest.mark.parametrize("content", ["", "seed: 1\n", "hash: 0123456\n", "words\n", "hash: [", "- 1\n", None])
def test_a_configuration_that_is_not_ours_is_set_aside(ended: RunConfig, content: str | None) -> None:
    """None: that of another seed."""
    twin = ended.model_copy(update={"seed": 1})
    kept = content if content is not None else folder_of(ended).config_path.read_text()
    folder_of(twin).path.mkdir()
    folder_of(twin).config_path.write_text(kept)
    assert execute(twin)[0] == "done"
    (aside,) = Path(ended.paths.results, "set_aside").glob("*/*/seed1/config.yaml")
    assert aside.read_text() == kept


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content + content.splitlines(keepends=True)[-1],
        lambda content: content.replace(b"0.", b"1.", 1),
        None,
    ],
    ids=["last byte", "half", "empty", "line more", "digit", "gone"],
)
def test_changed_records_are_not_read(ended: RunConfig, damage: Callable[[bytes], bytes] | None) -> None:
    folder = folder_of(ended)
    expected = bits(ended)
    if damage is None:
        folder.records_path.unlink()
    else:
        folder.records_path.write_bytes(damage(expected[0]))
    for read in (folder.read_records, folder.verify):
        with pytest.raises(DamagedError, match=r"records\.jsonl: damaged .*expected"):
            read()
    if folder.records_size() != len(expected[0]):
        with pytest.raises(DamagedError):
            folder.check_size(status_of(ended))
    else:  # a launch looks at the size only
        ResultsFolder(Path(ended.paths.results)).set_aside(ended.key)
    assert execute(ended)[0] == "done"
    assert bits(ended) == expected


def test_a_run_is_set_aside_twice_at_once(ended: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one second share a folder. A run that is there already has one of its own."""
    times = [datetime(2026, 11, 26, 22, 30, 15, microsecond) for microsecond in (1, 2, 3)]
    monkeypatch.setattr("benchmark.runs.store.datetime", Mock(now=Mock(side_effect=times)))
    results = ResultsFolder(Path(ended.paths.results))
    other = str(Path(ended.key).with_name("seed99"))
    shutil.copytree(folder_of(ended).path, results.run(other).path)
    first = results.set_aside(ended.key)
    shutil.copytree(first, folder_of(ended).path)
    places = [first, results.set_aside(other), results.set_aside(ended.key)]
    names = [str(place.relative_to(results.root / "set_aside")) for place in places]
    assert names == [
        f"20261126-223015/{ended.key}",
        f"20261126-223015/{other}",
        f"20261126-223015.000003/{ended.key}",
    ]
    assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in places[2].iterdir())


def test_records_of_a_run_that_goes_on_are_not_read(halfway: RunConfig) -> None:
    with pytest.raises(StorageError, match="has not ended"):
        folder_of(halfway).read_records()
    with pytest.raises(StorageError, match="has not ended"):
        RunFolder(Path("nowhere")).read_records()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-40],
        lambda content: b"",
        lambda content: content + b'{"round": 2, "split": "tra',
        lambda content: content.replace(b"0.", b"1.", 1),
        lambda content: content[:-60] + content[-60:].replace(b"0", b"1"),
        lambda content: b"".join(reversed(content.splitlines(keepends=True))),
    ],
    ids=["cut", "empty", "longer", "first digit", "last digits", "order"],
)
def test_records_of_a_stopped_run_that_are_not_those_of_its_checkpoint(
    halfway: RunConfig, calm: RunConfig, damage: Callable[[bytes], bytes]
) -> None:
    """After a power cut the checkpoint may be on the disk and the last records not: no gap may become a result."""
    path = folder_of(halfway).records_path
    path.write_bytes(damage(path.read_bytes()))
    assert execute(halfway)[0] == "done"
    assert bits(halfway) == bits(calm)


def flip_a_bit(path: Path) -> None:
    """One bit of the last tensor of a checkpoint. The archive has checksums that nothing compares."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        (last,) = [item for item in archive.infolist() if item.filename.endswith("/data/0")]
    content[last.header_offset + 200] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"hello world\n" * 100),
        lambda path: torch.save([1, 2, 3], path),
        lambda path: torch.save({"hash": "000000000000", "seed": 0, "records_bytes": 0, "state": {}}, path),
        lambda path: checkpoint.save(path, {"hash": "000000000000", "seed": 0}),
        flip_a_bit,
    ],
    ids=["cut", "empty", "text", "list", "without digest", "foreign", "bit"],
)
def test_a_damaged_checkpoint(halfway: RunConfig, calm: RunConfig, damage: Callable[[Path], None]) -> None:
    folder = folder_of(halfway)
    damage(folder.checkpoint_path)
    with pytest.raises(StorageError, match=r"checkpoint\.pt: damaged"):
        checkpoint.load(folder.checkpoint_path, halfway)
    assert execute(halfway)[0] == "done"
    assert bits(halfway) == bits(calm)
    assert (folder.path / "checkpoint.damaged.pt").exists()
    assert "The run starts again" in (folder.path / "log.txt").read_text()


def test_configuration_and_meta_are_complete(ended: RunConfig) -> None:
    folder = folder_of(ended)
    written = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert written.pop("hash") == ended.hash
    assert RunConfig.model_validate(written) == ended
    meta = json.loads((folder.path / "meta.json").read_text())
    assert meta["torch"] == torch.__version__
    assert meta["threads"] == 1
    assert {"commit", "dirty", "python", "numpy", "host", "device", "fingerprint", "partition"} <= set(meta)


def test_a_run_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    config = tiny(tmp_path / "results")
    folder = folder_of(config)
    folder.path.parent.mkdir(parents=True)
    folder.path.write_text("mine")
    with pytest.raises(StorageError, match=str(folder.path)):
        execute(config)
    assert folder.path.read_text() == "mine"


def test_results_that_only_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Permissions mean nothing to root, so the system's answer is made up.
    monkeypatch.setattr(Path, "mkdir", fail_with(errno.EACCES))
    with pytest.raises(StorageError, match=r"Permission denied.*Choose a folder that can be written"):
        ResultsFolder(tmp_path / "results").open()
