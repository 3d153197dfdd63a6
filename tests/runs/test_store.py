"""A run's folder: whole or refused by name, never half read, whatever happens to the disk."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_runs import FORKS, STATEFUL, STATELESS, bits, command, fill, folder_of, tiny, words_of

from benchmark.config.schema import FORMAT, RunConfig
from benchmark.errors import StorageError
from benchmark.runs.execute import execute
from benchmark.runs.files import write_atomically
from benchmark.runs.lease import Busy
from benchmark.runs.store import Results, RunFolder


def fail_with(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def interrupted(results: Path) -> RunConfig:
    """A run of three rounds, stopped after the first."""
    config = tiny(results, STATEFUL)
    asked = iter([False] * 3 + [True] * 100)
    assert execute(config, stop=lambda: next(asked))[0] == "interrupted"
    return config


def assert_as_undisturbed(config: RunConfig, folder: Path) -> None:
    """The finished run is the same, bit for bit, as one that nothing disturbed."""
    calm = tiny(folder / "calm", STATEFUL)
    execute(calm)
    assert bits(config) == bits(calm)


@pytest.fixture
def halfway(tmp_path: Path) -> RunConfig:
    return interrupted(tmp_path / "results")


@pytest.fixture
def ended(tmp_path: Path) -> RunConfig:
    config = tiny(tmp_path / "results", STATELESS)
    assert execute(config)[0] == "done"
    return config


# Writing -----------------------------------------------------------------------------------------------------------


def test_a_reader_sees_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    before = path.open("rb")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    with before:
        assert before.read() == b"old"
    assert os.listdir(tmp_path) == ["file"]


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


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    halfway: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(halfway)
    before = folder.checkpoint_path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("benchmark.runs.files.os.fsync", fail_with(errno.ENOSPC))
        with pytest.raises(StorageError, match="the disk is full"):
            folder.save_checkpoint({"hash": "other"})
    assert folder.checkpoint_path.read_bytes() == before
    loaded = folder.load_checkpoint(halfway)
    assert loaded is not None
    assert loaded["state"]["round"] == 1


# A disk that is full -----------------------------------------------------------------------------------------------


def run_command(words: list[str], output: Path) -> tuple[int | None, str]:
    """(exit code, what was printed) of a command in another process."""
    output.write_text("")
    process = FORKS.Process(target=command, args=(words, output))
    process.start()
    process.join()
    return process.exitcode, output.read_text()


@pytest.mark.parametrize("room", [False, True], ids=["no room", "room for small files"])
def test_full_disk(small_disk: Path, tmp_path: Path, room: bool) -> None:
    """With some room only the checkpoint does not fit: it fails in the middle of writing that."""
    config = interrupted(small_disk / "results")
    folder = folder_of(config)
    before = folder.checkpoint_path.read_bytes()
    ballast = fill(small_disk)
    if room:
        os.truncate(ballast, ballast.stat().st_size - max(16384, len(before) // 2))
    code, printed = run_command(words_of(config), tmp_path / "out.txt")
    assert code == 2, printed
    assert "the disk is full" in printed and "Traceback" not in printed
    assert folder.checkpoint_path.read_bytes() == before
    assert not [path for path in folder.path.rglob("*.tmp") if path.stat().st_size], "leftovers take room"
    if room:
        status = folder.status()
        assert "checkpoint.pt" in printed
        assert status is not None and status.state == "failed" and "the disk is full" in status.message
    ballast.unlink()
    code, printed = run_command(words_of(config), tmp_path / "out.txt")
    assert code == 0, printed
    assert_as_undisturbed(config, tmp_path)


@pytest.mark.parametrize("known", [True, False], ids=["known folder", "new folder"])
def test_full_disk_before_the_first_byte(small_disk: Path, tmp_path: Path, known: bool) -> None:
    config = tiny(small_disk / "results", STATEFUL)
    if known:
        Results(small_disk / "results").open()
    ballast = fill(small_disk)
    code, printed = run_command(words_of(config), tmp_path / "out.txt")
    assert code == 2, printed
    assert "the disk is full" in printed and "Traceback" not in printed
    ballast.unlink()
    assert run_command(words_of(config), tmp_path / "out.txt")[0] == 0
    assert bits(config)


# Damaged and foreign files ----------------------------------------------------------------------------------------


DAMAGED = r"status\.json: damaged .*Delete"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, DAMAGED) for content in (b"", b'{"state": "do', b"\xff\xfe\x00", b"[1, 2]", b'"done"')),
        ({"colour": "blue"}, DAMAGED),
        ({"format": FORMAT + 1}, f"got format {FORMAT + 1}; expected {FORMAT}"),
        ({"format": None}, f"got format None; expected {FORMAT}"),
    ],
)
def test_a_damaged_or_foreign_status_is_named(
    ended: RunConfig, content: bytes | dict[str, Any], said: str
) -> None:
    folder = folder_of(ended)
    path = folder.path / "status.json"
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content).encode()
    path.write_bytes(content)
    with pytest.raises(StorageError, match=said) as error:
        execute(ended)
    assert str(folder.path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "got configuration None"),
        ("hash: 0123456789ab\n", "got configuration '0123456789ab'"),
        ("just words\n", "damaged"),
        ("hash: [", "damaged"),
        ("- 1\n", "damaged"),
    ],
)
def test_a_configuration_that_is_not_ours_is_refused(ended: RunConfig, content: str, said: str) -> None:
    folder = folder_of(ended)
    (folder.path / "config.yaml").write_text(content)
    (folder.path / "status.json").unlink()
    records = folder.records_path.read_bytes()
    with pytest.raises(StorageError, match=rf"config\.yaml: {said}"):
        execute(ended)
    assert folder.records_path.read_bytes() == records


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
def test_records_that_have_changed_are_not_read(
    ended: RunConfig, damage: Callable[[bytes], bytes] | None
) -> None:
    folder = folder_of(ended)
    expected = bits(ended)
    if damage is None:
        folder.records_path.unlink()
    else:
        folder.records_path.write_bytes(damage(expected[0]))
    with pytest.raises(StorageError, match=r"records\.jsonl: damaged .*expected"):
        folder.read_records()
    status = folder.status()
    assert status is not None
    if folder.records_size() != len(expected[0]):
        # Every launch looks at the size, and carries out the run again, with the same results.
        assert not folder.complete(status)
        assert execute(ended)[0] == "done"
        assert bits(ended) == expected


def test_records_of_a_run_that_goes_on_are_not_read(halfway: RunConfig) -> None:
    with pytest.raises(StorageError, match="has not ended"):
        folder_of(halfway).read_records()
    with pytest.raises(StorageError, match="has not ended"):
        RunFolder(Path("nowhere")).read_records()


@pytest.mark.parametrize("damage", [lambda content: content[:-40], lambda content: b""], ids=["cut", "empty"])
def test_records_shorter_than_the_checkpoint_says(
    halfway: RunConfig, damage: Callable[[bytes], bytes]
) -> None:
    """After a power cut the checkpoint may be on the disk and the last records not: no gap may become a result."""
    folder = folder_of(halfway)
    folder.records_path.write_bytes(damage(folder.records_path.read_bytes()))
    try:
        assert execute(halfway)[0] == "done"
    except StorageError as error:
        assert "records.jsonl" in str(error)
    else:
        assert_as_undisturbed(halfway, folder.path.parents[3])


def test_records_longer_than_the_checkpoint_says_are_cut(halfway: RunConfig) -> None:
    folder = folder_of(halfway)
    with folder.records_path.open("ab") as stream:
        stream.write(b'{"round": 2, "split": "tra')
    assert execute(halfway)[0] == "done"
    assert_as_undisturbed(halfway, folder.path.parents[3])


def torch_file(content: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(content, path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.write_bytes(b"hello world\n" * 100), "damaged"),
        (torch_file([1, 2, 3]), "damaged"),
        (
            torch_file({"hash": "000000000000", "seed": 0, "records_bytes": 0, "state": {}}),
            "got configuration",
        ),
    ],
    ids=["cut", "empty", "text", "list", "foreign"],
)
def test_a_checkpoint_that_is_not_ours_is_named(
    halfway: RunConfig, damage: Callable[[Path], None], said: str
) -> None:
    folder = folder_of(halfway)
    damage(folder.checkpoint_path)
    with pytest.raises(StorageError, match=said) as error:
        folder.load_checkpoint(halfway)
    assert str(folder.checkpoint_path) in str(error.value)
    assert "Delete it" in str(error.value)
    with pytest.raises(StorageError, match=r"checkpoint\.pt"):
        execute(halfway)
    folder.checkpoint_path.unlink()
    assert execute(halfway)[0] == "done"


def test_a_checkpoint_of_another_seed_is_refused(halfway: RunConfig) -> None:
    other = halfway.model_copy(update={"seed": 5})
    with pytest.raises(StorageError, match=r"seed 0; expected .* seed 5"):
        folder_of(halfway).load_checkpoint(other)


def test_configuration_and_meta_are_complete(ended: RunConfig) -> None:
    folder = folder_of(ended)
    written = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert written.pop("hash") == ended.hash
    assert RunConfig.model_validate(written) == ended
    meta = json.loads((folder.path / "meta.json").read_text())
    assert meta["torch"] == torch.__version__
    assert meta["threads"] == 1
    assert {"commit", "dirty", "python", "numpy", "host", "device", "fingerprint", "partition"} <= set(meta)


# The results folder ------------------------------------------------------------------------------------------------


def test_results_of_another_format_are_refused(tmp_path: Path) -> None:
    results = Results(tmp_path / "results").open()
    marker = tmp_path / "results" / "runs" / "FORMAT"
    assert marker.read_text() == f"{FORMAT}\n"
    assert results.open() == results
    marker.write_text("999\n")
    with pytest.raises(StorageError, match=f"format '999'; expected {FORMAT}") as error:
        results.open()
    assert "paths.results" in str(error.value)
    assert str(tmp_path / "results") in str(error.value)
    assert [path.name for path in (tmp_path / "results").rglob("*")] == ["runs", "FORMAT"]


def test_results_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(StorageError, match=r"cannot be written.*paths\.results"):
        execute(tiny(tmp_path / "results"))
    assert (tmp_path / "results").read_text() == "mine"


def test_a_run_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    config = tiny(tmp_path / "results")
    folder = folder_of(config)
    folder.path.parent.mkdir(parents=True)
    folder.path.write_text("mine")
    with pytest.raises(StorageError, match=str(folder.path)):
        execute(config)
    assert folder.path.read_text() == "mine"


def test_one_launcher_at_a_time(tmp_path: Path) -> None:
    results = Results(tmp_path / "results").open()
    with results.launcher_lease():
        with pytest.raises(Busy, match="another process works on it") as error, results.launcher_lease():
            pass
        assert str(os.getpid()) in str(error.value)
        assert "nothing was changed" in str(error.value)
    with results.launcher_lease():
        pass
