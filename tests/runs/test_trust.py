"""A wrong number is never read as a result, whoever changed, copied or wrote the files."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from edited_code import Edit, edited  # noqa: F401
from rough_ends import Killed, remains, start, work_and_die
from tiny_runs import STATEFUL, bits, carry_out, folder_of, index_of, result_of, tiny

from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.launch.work import Plan, work
from benchmark.runs.result_files import DamagedError, read_records

# Finished runs -----------------------------------------------------------------------------------------------------


def edit(folder: Path, **values: object) -> None:
    """Change values of a result."""
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda folder: edit(folder, final={"test": {"accuracy": 0.99}}), "result.json"),
        (lambda folder: edit(folder, state="diverged"), "result.json"),
        (lambda folder: edit(folder, digest=None), "result.json"),
        (lambda folder: (folder / "result.json").write_bytes(b"{"), "result.json"),
        (lambda folder: (folder / "result.json").unlink(), "result.json"),
        (lambda folder: os.truncate(folder / "records.jsonl", 1000), "records.jsonl"),
        (lambda folder: (folder / "records.jsonl").unlink(), "records.jsonl"),
    ],
    ids=["accuracy", "state", "no digest", "cut", "none", "cut records", "no records"],
)
def test_a_damaged_result_is_carried_out_again(
    ended: RunConfig, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], name: str
) -> None:
    folder, expected = folder_of(ended), bits(ended)
    damage(folder.path)
    index = index_of(ended)
    assert index.state(ended.key) == "differs"
    assert index.result(ended.key) is None and not index.has_ended(ended.key) and index.by(ended.key) == ""
    assert f"{folder.path / name}: damaged" in index.problems[ended.key]
    assert carry_out(ended).state == "done"
    assert bits(ended) == expected and remains(ended) == [".seed0.old-1"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("carried out again: ") and f"{name}: damaged" in line and ".seed0.old-1" in line


def test_records_that_were_edited_are_not_read(ended: RunConfig) -> None:
    """Of the same size: whoever reads them sees it."""
    folder, index = folder_of(ended), index_of(ended)
    path = folder.path / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1))
    assert index.state(ended.key) == "done"
    for read in (folder.check, lambda: read_records(folder.path, result_of(ended))):
        with pytest.raises(DamagedError, match=r"records\.jsonl: damaged"):
            read()
    with pytest.raises(DamagedError, match=r"records\.jsonl: damaged"):
        index.records(ended.key)
    assert index.state(ended.key) == "differs" and index.final(ended.key, "test", "accuracy") is None


# Runs at work ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"hello world\n" * 100),
        lambda path: torch.save([1, 2, 3], path),
    ],
    ids=["cut", "empty", "text", "list"],
)
def test_a_damaged_checkpoint(halfway: RunConfig, calm: RunConfig, damage: Callable[[Path], None]) -> None:
    (attempt,) = folder_of(halfway).attempts()
    damage(attempt / "checkpoint.pt")
    assert carry_out(halfway).state == "done"
    assert bits(halfway) == bits(calm) and remains(halfway) == []
    assert "checkpoint.pt: damaged" in (folder_of(halfway).path / "log.txt").read_text()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-40],
        lambda content: content + b'{"round": 2, "split": "tra',
        lambda content: content.replace(b"0.", b"1.", 1),
        lambda content: b"".join(reversed(content.splitlines(keepends=True))),
        None,
    ],
    ids=["cut", "longer", "edited", "order", "none"],
)
def test_records_that_are_not_those_of_their_checkpoint(
    halfway: RunConfig, calm: RunConfig, damage: Callable[[bytes], bytes] | None
) -> None:
    """After a power cut the checkpoint may be on the disk and the last records not: no gap may become a result."""
    (attempt,) = folder_of(halfway).attempts()
    path = attempt / "records.jsonl"
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    assert carry_out(halfway).state == "done"
    assert bits(halfway) == bits(calm) and remains(halfway) == []


# Whole attempts ----------------------------------------------------------------------------------------------------


def killed_before_the_rename(config: RunConfig) -> None:
    """Leave a whole attempt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            carry_out(config)
    assert not folder_of(config).is_finished


@pytest.mark.parametrize("stale", ["rerun", "keep"])
def test_a_whole_attempt_is_published_if_it_is_current(
    tmp_path: Path,
    calm: RunConfig,
    edited: Edit,  # noqa: F811
    stale: str,
) -> None:
    config = tiny(tmp_path / "results", STATEFUL, stale=stale)
    rounds: list[int] = []
    killed_before_the_rename(config)
    assert carry_out(config, lambda round, *_: rounds.append(round)).state == "done"
    assert rounds == [] and bits(config) == bits(calm) and remains(config) == []

    shutil.rmtree(tmp_path / "results")
    killed_before_the_rename(config)
    edited("methods/fedavgm.py", "\nfrom ", "\nimport this\nfrom ")
    outcome = carry_out(config, lambda round, *_: rounds.append(round))
    assert rounds == ([] if stale == "keep" else [0, 1, 2, 3])
    assert ("code of methods/fedavgm.py" in outcome.message) == (stale == "rerun")
    assert bits(config) == bits(calm) and remains(config) == []


# What a launch gives up --------------------------------------------------------------------------------------------


def plan_of(config: RunConfig, launch: str) -> Plan:
    return Plan(id=launch, root=config.paths.results, runs=(config,))


def test_three_deaths_end_a_run_for_this_launch_only(
    tmp_path: Path, calm: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tmp_path / "results", STATEFUL)
    folder, plan = folder_of(config), plan_of(config, "first")
    for death in range(3):
        assert folder.failure("first") == "" and len(folder.attempts()) == death
        process = start(work_and_die, plan)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert folder.failure("first").startswith("3 processes died over it. Perhaps it needs more memory")
    assert work(plan, lambda: False) == 0 and not folder.is_finished
    second = plan_of(config, "second")
    assert work(second, lambda: False) == 1
    assert bits(config) == bits(calm) and remains(config) == []


def test_an_error_ends_a_run_for_this_launch_only(
    tmp_path: Path, calm: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tmp_path / "results", STATEFUL)
    folder, run_round = folder_of(config), FederatedRun.run_round

    def broken(self: FederatedRun, state: object) -> object:
        if state.round == 2:  # type: ignore[attr-defined]
            raise RuntimeError("no such thing")
        return run_round(self, state)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "run_round", broken)
        assert work(plan_of(config, "first"), lambda: False) == 1
    message, attempt = folder.last_failure() or ("", tmp_path)
    assert message == f"RuntimeError: no such thing (full log: {attempt / 'log.txt'})"
    assert folder.failure("first") == message and not folder.failure("second")
    log = (attempt / "log.txt").read_text()
    assert "Traceback" in log and "in broken" in log
    assert index_of(config).state(config.key) == "failed" and not folder.is_held
    assert work(plan_of(config, "first"), lambda: False) == 0
    # The checkpoint after round 2 is still there, and the next launch goes on from it.
    assert work(plan_of(config, "second"), lambda: False) == 1
    assert "resumed after round 2" in (folder.path / "log.txt").read_text()
    assert bits(config) == bits(calm) and remains(config) == []
