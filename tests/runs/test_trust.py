"""A wrong number is never read as a result, whoever changed, copied or wrote the files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edited_code import Edit, edited  # noqa: F401
from tiny_runs import STATEFUL, bits, folder_of, status_of, tiny

from benchmark import digests
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.errors import StorageError
from benchmark.runs.execute import execute
from benchmark.runs.index import RunIndex
from benchmark.runs.lease import LeaseLost, take
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import DamagedError, ResultsFolder, RunFolder
from benchmark.runs.writer import RunWriter
from methods.feddc import FedDC


def index_of(config: RunConfig, **options: Any) -> RunIndex:
    return RunIndex(ResultsFolder(Path(config.paths.results), **options))


# Ended runs --------------------------------------------------------------------------------------------------------


def edit(path: Path, *place: str, value: object) -> None:
    """Change one value of a JSON file."""
    content = json.loads(path.read_text())
    node = content
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    path.write_text(json.dumps(content, indent=1))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda folder: edit(folder / "status.json", "final", "test", "accuracy", value=0.99), "status.json"),
        (lambda folder: edit(folder / "status.json", "final", value={}), "status.json"),
        (lambda folder: edit(folder / "status.json", "state", value="diverged"), "status.json"),
        (lambda folder: edit(folder / "status.json", "digest", value=None), "status.json"),
        (lambda folder: (folder / "status.json").write_bytes(b"{"), "status.json"),
        (lambda folder: (folder / "records.jsonl").write_bytes(b""), "records.jsonl"),
        (lambda folder: (folder / "records.jsonl").unlink(), "records.jsonl"),
    ],
    ids=["accuracy", "nothing", "state", "no digest", "cut", "empty records", "no records"],
)
def test_a_changed_result_is_damaged(ended: RunConfig, damage: Callable[[Path], object], name: str) -> None:
    folder, expected = folder_of(ended), bits(ended)
    damage(folder.path)
    index = index_of(ended)
    assert index.state(ended.key) is RunState.DAMAGED
    assert index.status(ended.key) is None and not index.has_ended(ended.key)
    assert str(folder.path / name) in index.problems[ended.key]
    assert execute(ended)[0] == "done"
    assert bits(ended) == expected
    assert f"{name}: damaged" in (folder.path / "log.txt").read_text()
    assert list(Path(ended.paths.results, "set_aside").glob("*/*/seed0/log.txt"))


def test_a_final_value_that_contradicts_the_records(ended: RunConfig) -> None:
    """Also if whoever edited it has computed the digest anew: the next launch carries the run out again."""
    folder, expected = folder_of(ended), bits(ended)
    edit(folder.result_path, "final", "test", "accuracy", value=0.99)
    content = json.loads(folder.result_path.read_text())
    del content["digest"]
    edit(folder.result_path, "digest", value=digests.of(content))
    index = index_of(ended)
    assert index.state(ended.key) is RunState.DONE, "the status itself is whole"
    for read in (folder.read_records, folder.verify, lambda: index.final(ended.key, "test", "accuracy")):
        with pytest.raises(DamagedError, match="records"):
            read()
    assert index.state(ended.key) is RunState.DAMAGED and not index.has_ended(ended.key)
    index.results.set_aside(ended.key)
    assert execute(ended)[0] == "done" and bits(ended) == expected


@pytest.mark.parametrize(
    ("name", "old", "new"), [("config.yaml", "lr: 0.", "lr: 1."), ("meta.json", "cpu", "gpu")]
)
def test_what_describes_a_run_is_verified(ended: RunConfig, name: str, old: str, new: str) -> None:
    folder = folder_of(ended)
    assert folder.verify() == status_of(ended)
    path = folder.path / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DamagedError, match=name):
        folder.verify()


def test_a_copied_folder_is_no_result(ended: RunConfig) -> None:
    folder, other = folder_of(ended), folder_of(ended.model_copy(update={"seed": 1}))
    shutil.copytree(folder.path, other.path)
    foreign = RunFolder(folder.path.parents[1] / "fake-iid-fedprox-uniform-0123456789ab" / "seed0")
    shutil.copytree(folder.path, foreign.path)
    for copy in (other, foreign):
        with pytest.raises(DamagedError, match=rf"it belongs into a folder \*-{ended.hash}/seed0"):
            copy.status()
    assert execute(ended)[0] == "done"


# Runs at work ------------------------------------------------------------------------------------------------------


def test_records_that_were_edited_while_a_run_is_at_work(tmp_path: Path) -> None:
    config = tiny(tmp_path / "results", STATEFUL)

    def progress(round: int, *_: object) -> None:
        if round == 2:
            path = folder_of(config).records_path
            path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1))

    with pytest.raises(StorageError, match="changed by another program while the run was at work"):
        execute(config, progress)
    assert status_of(config).state == "failed"


def test_a_process_that_lost_the_run_writes_nothing_that_counts(tmp_path: Path) -> None:
    """It was suspended before each of its writes, while another process took over and ended the run."""
    folder = RunFolder(tmp_path / "it-0123456789ab" / "seed0")
    place = {"hash": "0123456789ab", "seed": 0}
    record, other = Record(1, "test", "all", "accuracy", 0.5), Record(1, "test", "all", "accuracy", 0.75)
    late = RunWriter(folder, take(folder.path, "it"))
    late.start_records()
    late.append_records([record])
    late.lease.__exit__()  # to the others it looks as if it had ended
    with take(folder.path, "it") as lease:
        writer = RunWriter(folder, lease)
        writer.start_records()
        late.append_records([record])
        writer.append_records([other])
        with pytest.raises(LeaseLost):
            late.write_status(Status(RunState.RUNNING, 1, 2, **place))
        with pytest.raises(LeaseLost):
            late.save_checkpoint({})
        sums = {"records_bytes": writer.records_bytes, "records_sha256": writer.records_sha256.hexdigest()}
        writer.publish(Status(RunState.DONE, 2, 2, **place, **sums), keep_checkpoint=False)
    for state in (RunState.RUNNING, RunState.FAILED, RunState.DONE):
        with pytest.raises(LeaseLost):
            late.write_status(Status(state, 1, 2, **place))
    status = folder.status()
    assert status is not None and (status.state, status.round) == ("done", 2)
    assert folder.read_records() == [other]
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["lease.1", "lease.2", "records.jsonl", "status.json"]


def test_a_status_replaced_while_it_is_read(ended: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(ended)
    result, newest = folder.result_path.read_bytes(), RunFolder.newest
    folder.result_path.unlink()

    def ends_now(folder: RunFolder, kind: str) -> Path:
        monkeypatch.setattr(RunFolder, "newest", newest)
        folder.result_path.write_bytes(result)
        return folder.path / "status.1.json"  # seen in the list, and gone

    monkeypatch.setattr(RunFolder, "newest", ends_now)
    assert status_of(ended).state == "done"


# Code --------------------------------------------------------------------------------------------------------------


FEDAVG = "methods/fedavg.py"


def test_a_changed_method_is_carried_out_again(ended: RunConfig, edited: Edit) -> None:  # noqa: F811
    assert set(status_of(ended).code) == {FEDAVG, "methods/selection/uniform.py", "partitions/iid.py"}
    before = bits(ended)
    edited(FEDAVG, "\nfrom ", "\n# changed\nfrom ")
    assert index_of(ended).state(ended.key) is RunState.DONE, "a comment changes nothing"
    edited(FEDAVG, "\nfrom ", "\nimport math\nfrom ")
    assert index_of(ended).state(ended.key) is RunState.STALE
    assert index_of(ended, stale="keep").state(ended.key) is RunState.DONE
    keep = ended.model_copy(update={"runtime": ended.runtime.model_copy(update={"stale": "keep"})})
    seen: list[int] = []
    assert execute(keep, lambda round, *_: seen.append(round))[0] == "done" and not seen
    assert execute(ended, lambda round, *_: seen.append(round))[0] == "done" and seen == [0, 1, 2, 3]
    assert bits(ended) == before
    assert index_of(ended).state(ended.key) is RunState.DONE
    (old,) = Path(ended.paths.results, "set_aside").glob("*/*/seed0/status.json")
    assert json.loads(old.read_text())["final"] == status_of(ended).final


def test_what_a_method_imports_is_its_own_and_the_engine_is_not(edited: Edit) -> None:  # noqa: F811
    feddc = digests.own(FedDC)
    assert {"methods/feddc.py", "methods/scaffold.py"} <= set(feddc)
    assert not any(path.startswith("methods/core") for path in feddc)
    engine = digests.engine()
    edited("methods/scaffold.py", '"""', '"""Another sentence. ')
    assert (digests.own(FedDC), digests.engine()) == (feddc, engine)
    edited("methods/scaffold.py", "\nimport ", "\nimport math\nimport ")
    assert digests.own(FedDC) != feddc
    edited("benchmark/engine/training.py", "\nimport ", "\nimport this\nimport ")
    assert digests.engine() != engine
