"""Every command on its way from words to files."""

import json
import shutil
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from command_line import FAKE_RUN, footprint, numbers
from edited_code import Edit, edited  # noqa: F401

from benchmark import paths
from benchmark.__main__ import main
from benchmark.cli import COMMANDS
from benchmark.config.compose import group_names


def states(results: Path) -> list[str]:
    return [json.loads(path.read_text())["state"] for path in results.glob("runs/*/seed*/result.json")]


# What there is -----------------------------------------------------------------------------------------------------


def test_list(cli: Any) -> None:
    out = cli("list", "selections").out
    assert " round_robin " in out and "fedavg" not in out
    code, out, err = cli("list")
    assert (code, err) == (0, "")
    groups = ("method", "dataset", "partition", "selection", "model")
    names = {name for group in groups for name in group_names(group)}
    names |= {"client: fedprox", "optimizer: momentum", "weights: uniform", "fedmr_table1", "fedmr_figure4"}
    assert {name for name in names if f" {name} " not in out} == set()
    for title in (*(f"{group}s" for group in groups), "tablesofthepapers", "figures", "analyses", "rules"):
        assert f"{title}\n" in out.replace(" ", "")


def test_usage(cli: Any) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("run", "table", "status", "list", "data", "export"):
        assert f"\n  {command} " in out
    assert cli() == (2, out, "")


@pytest.mark.parametrize("command", [*COMMANDS, "data prepare", "data partition"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([*command.split(), "--help"])
    except SystemExit as stopped:
        code = stopped.code
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert shown.out.startswith(f"usage: python -m benchmark {command.split()[0]} ")


# Data and partitions -----------------------------------------------------------------------------------------------


def test_the_partition_that_is_shown_is_that_of_the_run(cli: Any) -> None:
    words = [word.removeprefix("+") for word in FAKE_RUN[1:]]
    code, out, err = cli("data", "partition", *words)
    assert (code, err) == (0, "")
    for part in ("partition iid-", "clients  4", "GCI", "GAI", "GSC", "CCI", "CAI", "CSC"):
        assert part in out
    picture = Path(out.splitlines()[-1])
    assert picture.parent == Path("results/figures") and f"partition {picture.stem}\n" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert cli(*FAKE_RUN).code == 0
    (result,) = Path("results/runs").glob("*/seed0/result.json")
    lines = [line.split()[3:] for line in out.splitlines()]
    for counts in json.loads(result.read_text())["made"]["clients"]["counts"]:
        assert [str(count or ".") for count in counts] in lines
    code, out, _ = cli("data", "partition", *words, "seed=3", "out=deep/picture.png")
    assert code == 0 and "seed 3" in out
    assert Path("deep/picture.png").stat().st_size > 1000


# Tables ------------------------------------------------------------------------------------------------------------


def test_table_from_nothing_to_files(cli: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = yaml.safe_load(Path("conf/table/toy_table1.yaml").read_text())["columns"]
    late = {"key": "late", "label": "Late", "partition": "iid", "presets": ["paper"]}
    toy(presets=["quick", "paper"], columns=[*columns, late])
    assert numbers(cli("status", "seeds=1").out) == {"missing": 4}
    code, out, err = cli("table", "name=toy_table1", "seeds=1", "launcher=inline")
    assert (code, err) == (0, "")
    written = "results/tables/quick/toy_table1.{csv,tex,md}"
    assert f"toy_table1: 4 done, 2 cells not in this preset; {written}" in out
    assert states(Path("results")) == ["done"] * 4
    folder = Path("results/tables/quick")
    assert sorted(path.suffix for path in folder.iterdir()) == [".csv", ".md", ".tex"]

    frame = pd.read_csv(folder / "toy_table1.csv", keep_default_na=False).set_index(["row", "column"])
    for row in ("fedavg", "fedavgm"):
        values = []
        for column in ("iid", "dir"):
            cell = frame.loc[(row, column)]
            final = json.loads((Path("results") / cell["runs"] / "result.json").read_text())["final"]["test"]
            assert float(cell["mean"]) == pytest.approx(100 * final["accuracy"], abs=1e-6)
            assert (cell["status"], cell["n"], cell["n_planned"]) == ("done", 1, 1)
            values.append(final["accuracy"])
        assert float(frame.loc[(row, "avg")]["mean"]) == pytest.approx(100 * sum(values) / 2, abs=1e-6)
    # A column without runs is shown, everywhere.
    assert set(frame.xs("late", level="column")["status"]) == {"not in this preset"}
    for suffix in ("md", "tex"):
        text = (folder / f"toy_table1.{suffix}").read_text()
        assert "Late" in text and "not in this preset" in text
    shown = cli("status", "seeds=1").out
    assert numbers(shown) == {"done": 4} and "2 not in this preset" in shown

    # Once more: nothing is launched, nothing is touched, the same files.
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    touched = footprint(Path("results/runs"))
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)
    answer = cli("table", "name=toy_table1", "seeds=1", "launcher=inline")
    assert answer.code == 0 and answer.out.endswith("\nreport: results/report/index.html\n")
    assert "nothing of importance" in Path("results/report/index.html").read_text()
    assert footprint(Path("results/runs")) == touched
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


@pytest.mark.slow
def test_other_options_of_the_data_set_are_other_runs_and_said(cli: Any, toy: Any) -> None:
    """`FAKE` has 96 training images."""
    words = ("name=toy_table1", "seeds=1", "launcher=inline", "rows=fedavg", "columns=iid")
    assert cli("table", *words).code == cli("table", *words, "dataset.options.train_size=64").code == 0
    assert states(Path("results")) == ["done"] * 2
    text = Path("results/tables/quick/toy_table1_part.md").read_text()
    assert "dataset.options.train_size=64 in place of 96" in text
    assert (
        numbers(cli("status", "name=toy_table1", "seeds=1", "dataset.options.train_size=64").out)["done"] == 1
    )


def test_more_seeds_and_damaged_results_run_only_what_is_missing(cli: Any, toy: Any) -> None:
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    csv = Path("results/tables/quick/toy_table1.csv")
    expected, first = csv.read_bytes(), min(Path("results/runs").glob("*/*/result.json"))
    records = (first.parent / "records.jsonl").read_bytes()
    first.write_bytes(first.read_bytes()[:100])
    code, out, _ = cli("status", "seeds=1")
    assert code == 0 and "3 done, 1 differs" in out and f"{first}: damaged" in out
    before = {
        name: mark
        for name, mark in footprint(Path("results/runs")).items()
        if first.parent.parent.name not in name
    }
    code, out, _ = cli("table", "seeds=1", "launcher=inline")
    assert code == 0 and "carried out again: " in out and ".seed0.old-1" in out
    assert ((first.parent / "records.jsonl").read_bytes(), csv.read_bytes()) == (records, expected)
    code, out, _ = cli("table", "seeds=2", "launcher=inline")
    assert code == 0 and "8 done" in out
    assert states(Path("results")) == ["done"] * 8
    after = footprint(Path("results/runs"))
    assert {name: after[name] for name in before} == before


def test_a_changed_method_is_run_again_or_kept_and_marked(cli: Any, toy: Any, edited: Edit) -> None:  # noqa: F811
    words = ("name=toy_table1", "seeds=1", "launcher=inline")
    assert cli("table", *words).code == 0
    before = {path: path.read_bytes() for path in Path("results/runs").glob("*/*/result.json")}
    edited("methods/fedavgm.py", "\nfrom ", "\nimport this\nfrom ")
    assert numbers(cli("status", *words[:2]).out) == {"done": 2, "differs": 2}
    code, out, _ = cli("table", *words, "stale=keep")
    assert code == 0 and "4 done" in out
    assert {path: path.read_bytes() for path in before} == before
    text = Path("results/tables/quick/toy_table1.md").read_text()
    assert "‡ code of methods/fedavgm.py (seed 0): FedAvgM (all columns)" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| FedAvgM "))
    assert line.count("‡") == 3
    assert r"\ddagger" in Path("results/tables/quick/toy_table1.tex").read_text()
    cells = pd.read_csv("results/tables/quick/toy_table1.csv").set_index("row")
    assert list(cells.loc["fedavgm", "marks"].str.contains("differs")) == [True] * 3
    assert set(cells.loc["fedavgm", "differs"]) == {"code of methods/fedavgm.py"}

    assert cli("table", *words).code == 0
    assert numbers(cli("status", *words[:2]).out) == {"done": 4}
    assert sum(path.read_bytes() != content for path, content in before.items()) == 2
    assert "‡" not in Path("results/tables/quick/toy_table1.md").read_text()
    edited("benchmark/engine/training.py", "\nimport ", "\nimport this\nimport ")
    code, out, _ = cli("table", *words)
    assert code == 0 and "4 done" in out
    text = Path("results/tables/quick/toy_table1.md").read_text()
    assert "‡ the engine (seed 0): all rows (all columns)" in text


@pytest.mark.slow
def test_records_that_were_changed_are_a_gap_and_carried_out_again(cli: Any, toy: Any) -> None:
    """Records are not looked at before they are needed, as here for the best round."""
    toy(which_round="best_test")
    words = ("name=toy_table1", "seeds=1", "launcher=inline")
    assert cli("table", *words).code == 0
    path = next(Path("results/runs").glob("fake-iid-fedavg-*/*/records.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1))
    made = cli("table", *words)
    assert made.code == 0 and "records.jsonl: damaged" in made.out
    text = Path("results/tables/quick/toy_table1.md").read_text()
    assert "differs (seed 0): FedAvg (IID)" in text
    assert numbers(cli("status", *words[:2]).out) == {"done": 3, "missing": 1}
    assert cli("table", *words).code == 0
    assert "differs" not in Path("results/tables/quick/toy_table1.md").read_text()


def test_rows_columns_and_places(cli: Any, toy: Any, tmp_path: Path) -> None:
    words = "table rows=fedavg columns=i* seeds=1 launcher=inline results=there"
    code, out, _ = cli(*words.split(), f"out={tmp_path / 'mine'}")
    assert code == 0
    assert "1 done" in out
    assert states(Path("there")) == ["done"]
    assert "1 of 2 rows and 1 of 3 columns" in (tmp_path / "mine" / "toy_table1.md").read_text()
    assert not Path("results").exists()


def test_a_table_that_an_analysis_makes(cli: Any) -> None:
    code, out, err = cli("table", "paper=fedmr", "table=3")
    assert (code, err) == (0, "")
    assert "fedmr_table3: results/tables/quick/fedmr_table3." in out
    assert "11.182" in Path("results/tables/quick/fedmr_table3.csv").read_text()


# Where things are looked for ---------------------------------------------------------------------------------------


def test_a_file_that_two_repositories_have(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = shutil.copytree(paths.ROOT / "docs/template/conf", tmp_path / "conf")
    monkeypatch.setattr(paths, "CONF_FOLDERS", [conf, paths.CONF])
    file = shutil.copyfile(paths.CONF / "method/fedprox.yaml", conf / "method/fedprox.yaml")
    assert f"fedprox.yaml is there twice: {file} and" in cli("run", "method=fedprox").err


def test_a_path_with_nothing_in_it(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "REPOSITORIES", [tmp_path / "nowhere"])
    assert "FEDTABLES_PATH: got" in cli("list").err


def test_another_package_of_one_of_our_names(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "installed" / "datasets" / "__init__.py"
    monkeypatch.setattr(paths, "find_spec", lambda name: spec_from_file_location(name, there))
    code, _, message = cli("list")
    assert code == 2 and str(there) in message and f"PYTHONPATH={paths.ROOT}" in message
