"""The golden table, and what a table does with gaps, ties and odd text.

The golden files were written by hand. Column A, in percent: FedAvg 60 62 64 (mean 62, std 2), FedProx 70 71 72 (71, 1),
FedAvgM 70.5 69 72 (70.5, 1.5). FedProx - FedAvg = 10 9 8: t = 9 sqrt(3); with 2 degrees of freedom the one-sided p is
(1 - sqrt(t^2 / (t^2 + 2))) / 2 = (1 - sqrt(243/245)) / 2 = 0.002045. FedProx - FedAvgM = -0.5 2 0: t^2 = 3/7, p =
(1 - sqrt(3/17)) / 2 = 0.289958. Average: FedProx - FedAvgM = -0.25 1.5 -0.5: t^2 = 3/19, p = (1 - sqrt(3/41)) / 2 =
0.364750. Kendall's tau in A: of three pairs only (FedProx, FedAvgM) is turned round: (2 - 1) / 3. In B the two complete
means are equal, and in Average only one of them has a published number: no tau.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmark.errors import StorageError
from benchmark.experiments.spec import TABLE_FOLDER, TableSpec, load_spec
from benchmark.reports.notes import blocks
from benchmark.reports.published import PublishedTable
from benchmark.reports.render import latex, markdown
from benchmark.reports.tables import Cell, CellRun, Table, build_table, write

GOLDEN = Path(__file__).parent / "golden"


def toy_spec() -> TableSpec:
    return load_spec(GOLDEN / "toy_table1.yaml")


def toy_cells() -> dict[tuple[str, str], Cell]:
    cells = {}
    for row, columns in json.loads((GOLDEN / "cells.json").read_text()).items():
        for column, node in columns.items():
            if isinstance(node, str):
                cells[row, column] = Cell(node)
                continue
            runs = [
                CellRun(
                    seed, status, value, None if status == "missing" else f"runs/{row}-{column}/seed{seed}"
                )
                for seed, (status, value) in enumerate(node)
            ]
            cells[row, column] = Cell("ok", tuple(runs))
    return cells


@pytest.fixture
def published(tmp_path: Path) -> PublishedTable:
    shutil.copy(GOLDEN / "toy_table1.published.csv", tmp_path / "toy_table1.csv")
    return PublishedTable(toy_spec(), tmp_path)


@pytest.fixture
def toy(published: PublishedTable) -> Table:
    notes = dict.fromkeys("abc", "digits for photographs")
    return build_table(toy_spec(), "quick", toy_cells(), notes=notes, published=published)


@pytest.mark.parametrize("suffix", ["csv", "md", "tex"])
def test_golden(toy: Table, tmp_path: Path, suffix: str) -> None:
    write(toy, tmp_path / "tables")
    assert (tmp_path / "tables" / f"toy_table1.{suffix}").read_text() == (
        GOLDEN / f"toy_table1.{suffix}"
    ).read_text()


def test_writing_leaves_no_other_files_and_replaces_old_ones(toy: Table, tmp_path: Path) -> None:
    (tmp_path / "toy_table1.md").write_text("old")
    paths = write(toy, tmp_path)
    assert sorted(
        path.name for path in tmp_path.iterdir() if path.name.startswith((".", "toy_table1."))
    ) == sorted(path.name for path in paths)
    assert (tmp_path / "toy_table1.md").read_text() == toy.to_markdown()


def test_a_folder_that_cannot_be_written_is_a_storage_error(toy: Table, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"tables: cannot be written .*paths\.results"):
        write(toy, tmp_path / "file" / "tables")


def test_loss_ranks_the_other_way_round_and_is_not_in_percent(published: PublishedTable) -> None:
    spec = toy_spec().model_copy(update={"metric": "loss"})
    table = build_table(spec, "quick", toy_cells(), published=published)
    assert table.cells["fedavg", "a"].mark.best
    assert table.cells["fedavgm", "a"].mark.second
    assert table.cells["fedavg", "a"].summary.mean == pytest.approx(0.62)
    assert "(lowest)" in table.to_markdown()
    assert "Test loss, mean" in table.to_markdown()


def test_a_finished_run_without_a_finite_number_is_never_a_result() -> None:
    assert CellRun(0, "done", float("nan")).status == "diverged"
    assert CellRun(0, "done", None).status == "missing"
    assert CellRun(0, "failed", 0.9).value is None
    with pytest.raises(ValueError, match="queued"):
        CellRun(0, "queued")
    with pytest.raises(ValueError, match="broken"):
        Cell("broken")


def test_a_lone_seed_has_no_spread_and_no_test(published: PublishedTable) -> None:
    cells = {key: Cell(cell.state, cell.runs[:1]) for key, cell in toy_cells().items()}
    table = build_table(toy_spec(), "quick", cells, published=published)
    assert markdown.measured_text(table.cells["fedavgm", "a"]) == "**70.50** (n=1)"
    assert markdown.measured_text(table.cells["fedprox", "a"]) == "<ins>70.00</ins> (n=1)"
    assert "one seed, so without spread" in table.to_markdown()
    assert "The test needs at least two seeds" in table.to_markdown()


def test_cells_that_nobody_gave_are_missing_not_dropped(published: PublishedTable) -> None:
    table = build_table(toy_spec(), "quick", {}, published=published)
    assert len(table.cells) == 4 * 6
    assert {cell.status for cell in table.cells.values()} == {"missing"}
    assert "missing: all rows (all columns)" in table.to_markdown()


def test_cells_of_another_table_are_refused(published: PublishedTable) -> None:
    with pytest.raises(ValueError, match="typo"):
        build_table(toy_spec(), "quick", {("fedavg", "typo"): Cell()}, published=published)
    with pytest.raises(ValueError, match="digits/avg"):
        build_table(toy_spec(), "quick", {("fedavg", "digits/avg"): Cell()}, published=published)


def test_an_average_needs_every_part_of_a_seed(published: PublishedTable) -> None:
    cells = toy_cells()
    cells["fedprox", "b"] = Cell("ok", (CellRun(0, "done", 0.9), CellRun(2, "running")))
    average = build_table(toy_spec(), "quick", cells, published=published).cells["fedprox", "digits/avg"]
    assert [(run.seed, run.status) for run in average.runs] == [(0, "done"), (1, "missing"), (2, "running")]
    assert average.values == {0: 80.0}
    assert not average.complete


def test_a_table_without_a_published_counterpart_says_nothing_about_it() -> None:
    spec = toy_spec().model_copy(update={"published": ()})
    table = build_table(spec, "quick", toy_cells())
    assert "published" not in table.to_markdown()
    assert "published" not in table.to_latex()


def test_best_on_test_is_said_in_every_column(published: PublishedTable) -> None:
    spec = toy_spec().model_copy(update={"which_round": "best_test"})
    header = build_table(spec, "quick", {}, published=published).to_markdown().splitlines()[4]
    assert header.count("(best on test)") == 6


def test_wide_tables_are_cut_into_blocks_of_whole_groups() -> None:
    table = build_table(load_spec(TABLE_FOLDER / "fedmr_table1.yaml"), "quick", {})
    assert [(block.title, len(block.columns)) for block in blocks(table)] == [
        ("FMNIST", 6),
        ("SVHN", 6),
        ("CIFAR-10", 6),
        ("CIFAR-100", 6),
    ]
    assert table.to_markdown().count("\n## ") == 4
    assert table.to_latex().count(r"\begin{tabular}") == 4


def test_text_cannot_break_the_markup(published: PublishedTable) -> None:
    spec = toy_spec()
    rows = (spec.rows[0].model_copy(update={"label": "a|b*<c>"}), *spec.rows[1:])
    spec = spec.model_copy(update={"rows": rows, "title": "A_B & {C} #1 \\ 漢"})
    table = build_table(spec, "quick", toy_cells(), published=published)
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {8}
    assert r"| a\|b\*&lt;c> |" in lines[2]
    assert latex.escape(spec.title) == r"A\_B \& \{C\} \#1 \textbackslash{} ?"


def _pdflatex(folder: Path, name: str) -> str:
    result = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:]
    return result.stdout


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", ["toy_table1", "fedmr_table1", "feddiverse_table3"])
def test_latex_compiles_as_it_is_and_included(toy: Table, tmp_path: Path, name: str) -> None:
    table = (
        toy if name == "toy_table1" else build_table(load_spec(TABLE_FOLDER / f"{name}.yaml"), "paper", {})
    )
    write(table, tmp_path)
    assert "Overfull" not in _pdflatex(tmp_path, f"{name}.tex")
    preamble = r"\documentclass{article}\usepackage{booktabs,graphicx}"
    body = rf"\begin{{document}}Text. \input{{{name}}} More text.\end{{document}}"
    (tmp_path / "main.tex").write_text(preamble + body)
    _pdflatex(tmp_path, "main.tex")
    assert (tmp_path / "main.pdf").stat().st_size > 0
