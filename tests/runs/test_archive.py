"""Runs of two labs in one table: what an archive must be, and that no launch touches what was imported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from command_line import footprint
from finished_runs import as_markdown, finish, toy_table
from tiny_runs import tiny

from benchmark import api, code
from benchmark.config.schema import RunConfig
from benchmark.errors import UserError
from benchmark.experiments.plan import plan
from benchmark.launch.launch import move_others, run_here
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.runs.archive import write_archive
from benchmark.runs.data import load_dataset
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SPEC = toy_table(("fedavg", "fedprox"), seeds=2)
CELLS = plan(SPEC, "quick")
OURS, THEIRS = (list(CELLS[row, "a"].runs) for row in ("fedavg", "fedprox"))


@pytest.fixture(autouse=True)
def nothing_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test has prepared data, which an import would compare."""
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))


def folder_with(place: Path, runs: list[RunConfig], value: float, **how: Any) -> ResultsFolder:
    results = ResultsFolder(place).open()
    for run in runs:
        finish(results, run, final={"test": {"accuracy": value}}, **how)
    return results


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Both runs of FedProx, which lab-b has made with accuracy 0.6."""
    results = folder_with(tmp_path / "b", THEIRS, 0.6)
    path, runs = api.export_archive("lab-b", out=tmp_path / "b.zip", results=results.root)
    assert [run.key for run in runs] == sorted(run.key for run in THEIRS)
    return path


def test_two_labs_fill_one_table(tmp_path: Path, archive: Path) -> None:
    results = folder_with(tmp_path / "a", OURS, 0.5)
    done = api.import_runs(archive, results=results.root)
    assert (done.by, done.new, done.before, dict(done.differs)) == ("lab-b", 2, 0, {})
    assert api.import_runs(archive, results=results.root).before == 2
    measured = collect(SPEC, "quick", CELLS, RunIndex(results))
    data = as_table(measured).data.set_index("row")
    assert dict(data["mean"]) == {"fedavg": 50, "fedprox": 60} and dict(data["n"]) == {
        "fedavg": 2,
        "fedprox": 2,
    }
    assert dict(data["by"]) == {"fedavg": "", "fedprox": "lab-b"}
    assert data["runs"]["fedprox"] == ";".join(f"imported/lab-b/{run.key}" for run in THEIRS)
    assert "- run by lab-b (seeds 0, 1): fedprox (all columns)" in as_markdown(measured).replace("* ", "- ")
    assert measured.by(SPEC.row("fedprox")) == ["lab-b"] and measured.by(SPEC.row("fedavg")) == []
    assert len(api.runs(results.root)) == 4
    # Without imported runs a table is as it was.
    alone = collect(SPEC, "quick", CELLS, RunIndex(ResultsFolder(tmp_path / "b")))
    assert "by" not in as_table(alone).data
    # They are not sent on under another name.
    _, sent = api.export_archive("lab-a", out=tmp_path / "a.zip", results=results.root)
    assert {run.key for run in sent} == {run.key for run in OURS}


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.6, "1 run with the same records, 0 runs"), (0.7, "0 runs with the same records, 1 run with")],
)
def test_the_own_run_counts(tmp_path: Path, archive: Path, value: float, said: str) -> None:
    results = folder_with(tmp_path / "a", THEIRS[:1], value)
    assert said in str(api.import_runs(archive, results=results.root))
    index = RunIndex(results)
    assert [index.final(run.key, "test", "accuracy") for run in THEIRS] == [value, 0.6]
    assert [index.folder(run.key).by for run in THEIRS] == ["", "lab-b"]


def test_runs_of_other_code_are_imported_and_marked(tmp_path: Path) -> None:
    """The import says what differs, and the table marks the runs. A launch would carry out own ones again."""
    other = {"code": {"methods/fedavg.py": "0" * 16}}
    theirs = folder_with(tmp_path / "b", THEIRS, 0.6, origin=other)
    assert not any(RunIndex(theirs).has_ended(run.key) for run in THEIRS)
    archive = tmp_path / "b.zip"
    write_archive(archive, {run.key: theirs.run(run.key) for run in THEIRS}, "lab-b")
    results = folder_with(tmp_path / "a", OURS, 0.5)
    done = api.import_runs(archive, results=results.root)
    assert "Made with other code or data than this checkout has: code of methods/fedavg.py (2 runs)." in str(
        done
    )
    index = RunIndex(results)
    assert all(index.has_ended(run.key) for run in THEIRS)
    cell = collect(SPEC, "quick", CELLS, index).cells["fedprox", "a"]
    assert cell.complete and cell.differs == {"code of methods/fedavg.py": [0, 1]}


def test_data_that_are_prepared_here_are_compared(tmp_path: Path) -> None:
    """Their path on the other machine is not there."""
    run = tiny(tmp_path / "a")
    fingerprint = load_dataset(run.dataset, run.paths).fingerprint
    same = folder_with(
        tmp_path / "b", [run], 0.6, origin={"data": fingerprint}, made={"prepared": "/elsewhere"}
    )
    other = folder_with(tmp_path / "c", [run], 0.6, origin={"data": "other"}, made={"prepared": "/elsewhere"})
    for lab, results, said in (("b", same, {}), ("c", other, {"the data": 1})):
        path, _ = api.export_archive(lab, out=tmp_path / f"{lab}.zip", results=results.root)
        assert api.import_runs(path, results=tmp_path / f"a-{lab}").differs == said


def test_data_of_another_lab_leave_no_gap_in_own_cells(tmp_path: Path) -> None:
    """Own runs stay, though those of the other lab are newer; a column never mixes data."""
    results = folder_with(tmp_path / "a", OURS, 0.5)
    theirs = folder_with(tmp_path / "b", THEIRS, 0.6, origin={"data": "other"})
    path, _ = api.export_archive("lab-b", out=tmp_path / "b.zip", results=theirs.root)
    api.import_runs(path, results=results.root)
    cells = collect(SPEC, "quick", CELLS, RunIndex(results)).cells
    assert (cells["fedavg", "a"].outcome, cells["fedprox", "a"].outcome) == ("done", "differs")


# What is refused -------------------------------------------------------------------------------------------------


def changed(archive: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The archive with other files in it."""
    with ZipFile(archive) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    change(files)
    path = archive.with_name("changed.zip")
    with ZipFile(path, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return path


KEY = THEIRS[0].key


def edit(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], object]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return change


def rename(files: dict[str, bytes]) -> None:
    """The run under the hash of another configuration."""
    for name in [name for name in files if name.startswith(KEY)]:
        files[name.replace(THEIRS[0].hash, OURS[0].hash)] = files.pop(name)


def forge(part: str, key: str, value: object) -> Callable[[dict[str, bytes]], object]:
    """Another value in result.json, with the digest that belongs to it."""

    def change(files: dict[str, bytes]) -> None:
        content = json.loads(files[f"{KEY}/result.json"])
        content[part][key] = value
        del content["digest"]
        files[f"{KEY}/result.json"] = json.dumps(content | {"digest": code.digest(content)}).encode()

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.update({"../outside": b""}), r"got the file '\.\./outside'; expected NAME-HASH"),
        (lambda files: files.update({f"{KEY}/../../x": b""}), "got the file "),
        (lambda files: files.update({f"/{KEY}/log.txt": b""}), "got the file "),
        (lambda files: files.update({f"{KEY}/checkpoint.pt": b""}), "got the file "),
        (lambda files: files.pop(f"{KEY}/records.jsonl"), "records.jsonl: 0 bytes; expected"),
        (edit(f"{KEY}/records.jsonl", b"0.6", b"0.9"), "records.jsonl: .* with another digest"),
        (edit(f"{KEY}/result.json", b"0.6", b"0.9"), "result.json: it is not what was written"),
        (edit(f"{KEY}/config.yaml", b"rounds: ", b"rounds: 1"), "config.yaml: it belongs into a folder"),
        (rename, "it belongs into a folder"),
        (forge("final", "test", {"accuracy": 0.99}), "the last values in result.json are not those of"),
        (forge("origin", "code", {"../../dev/zero": "0"}), "result.json: got the code"),
        (forge("final", "test", {"accuracy": "0.6"}), "result.json: final.test.accuracy: Input should be"),
        (lambda files: files.pop("archive.json"), "no item named .archive.json"),
        (edit("archive.json", b'"lab-b"', b'"../lab"'), r"by: got '\.\./lab'; expected who ran the runs"),
        (edit("archive.json", b"3", b"2"), "got runs of format 2; expected 3"),
    ],
)  # fmt: skip
def test_what_is_not_as_written_is_refused_as_a_whole(
    tmp_path: Path, archive: Path, change: Callable[[dict[str, bytes]], object], said: str
) -> None:
    """The other run of the archive is good, and is not imported either."""
    with pytest.raises(UserError, match=rf"(?s)import: .*changed\.zip: .*{said}"):
        api.import_runs(changed(archive, change), results=tmp_path / "a")
    assert list((tmp_path / "a" / "imported").iterdir()) == []


def test_a_file_that_is_cut_off_or_no_archive(tmp_path: Path, archive: Path) -> None:
    whole = archive.read_bytes()
    middle = len(whole) // 3
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for content in (whole[:middle], b"no archive", b"", flipped):
        archive.write_bytes(content)
        with pytest.raises(UserError, match="import: "):
            api.import_runs(archive, results=tmp_path / "a")
    with pytest.raises(UserError, match="No such file"):
        api.import_runs(tmp_path / "absent.zip", results=tmp_path / "a")


def test_a_name_is_taken_by_other_records(tmp_path: Path, archive: Path) -> None:
    api.import_runs(archive, results=tmp_path / "a")
    other = folder_with(tmp_path / "c", THEIRS, 0.7)
    path, _ = api.export_archive("lab-b", out=tmp_path / "c.zip", results=other.root)
    with pytest.raises(UserError, match="has other records"):
        api.import_runs(path, results=tmp_path / "a")


# Launches --------------------------------------------------------------------------------------------------------


def test_a_launch_leaves_imported_runs_alone(tmp_path: Path) -> None:
    """Their code is not today's. Of three runs only the one that nobody has is carried out."""
    wanted = [tiny(tmp_path / "a", {"train": {"rounds": 1}}, seed=seed) for seed in range(3)]
    theirs = folder_with(tmp_path / "b", wanted[:2], 0.6, origin={"code": {"methods/fedavg.py": "0" * 16}})
    write_archive(tmp_path / "b.zip", {run.key: theirs.run(run.key) for run in wanted[:2]}, "lab-b")
    results = ResultsFolder(tmp_path / "a").open()
    api.import_runs(tmp_path / "b.zip", results=results.root)
    before, index = footprint(results.root / "imported"), RunIndex(results)
    move_others(index, [run.key for run in wanted])
    for run in wanted:
        assert run_here(index, run, lambda *_: None).state == "done"
    assert results.run_keys() == [wanted[2].key]
    assert footprint(results.root / "imported") == before
    # What a launch has written is what an import expects.
    path, _ = api.export_archive("lab-a", out=tmp_path / "a.zip", results=results.root)
    assert str(api.import_runs(path, results=tmp_path / "c")).startswith("1 run by lab-a imported to ")
