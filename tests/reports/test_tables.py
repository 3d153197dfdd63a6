"""The golden table, and what a table does with gaps, ties and odd text.

The golden files were written by hand. Column A, in percent: FedAvg 60 62 64 (mean 62, std 2), FedProx 70 71 72 (71, 1),
FedAvgM 70.5 69 72 (70.5, 1.5). FedProx - FedAvg = 10 9 8: t = 9 sqrt(3); with 2 degrees of freedom the one-sided p is
(1 - sqrt(t^2 / (t^2 + 2))) / 2 = (1 - sqrt(243/245)) / 2 = 0.002045. FedProx - FedAvgM = -0.5 2 0: t^2 = 3/7, p =
(1 - sqrt(3/17)) / 2 = 0.289958. Average: FedProx - FedAvgM = -0.25 1.5 -0.5: t^2 = 3/19, p = (1 - sqrt(3/41)) / 2 =
0.364750. Kendall's tau in A: of three pairs only (FedProx, FedAvgM) is turned round: (2 - 1) / 3. In B the two
complete means are equal, and in Average only one of them has a published number: no tau. The 97.5 % quantile of t
with 2 degrees of freedom is 4.302653, so FedProx - FedAvg = 9 +- 4.302653 / sqrt(3) = 9 +- 2.484138. FedAvgM -
FedProx = 0.5 -2 0 has the squared deviations 1 2.25 0.25, so it is -0.5 +- 4.302653 sqrt(1.75 / 3) = -0.5 +-
3.286224.
"""

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from finished_runs import as_markdown, finish, toy_table
from markdown_it import MarkdownIt

from benchmark.commands.tables import check_show
from benchmark.errors import ConfigError
from benchmark.experiments.metrics import Show
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import load_spec
from benchmark.paths import CONF
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.render import latex, markdown, terminal
from benchmark.reports.results import Cell, CellRun, build_results
from benchmark.reports.tables import Table, text_table
from benchmark.reports.write import write
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

GOLDEN = Path(__file__).parent / "golden"


def toy_spec() -> TableSpec:
    return load_spec(GOLDEN / "toy_table1.yaml")


def toy_cells() -> dict[tuple[str, str], Cell]:
    cells = {}
    for row, columns in json.loads((GOLDEN / "cells.json").read_text()).items():
        for column, node in columns.items():
            state, runs = (node, []) if isinstance(node, str) else ("ok", node)
            cells[row, column] = Cell(state, tuple(
                CellRun(seed, outcome, value, None if outcome == "missing" else f"runs/{row}-{column}/seed{seed}")
                for seed, (outcome, value) in enumerate(runs)
            ))  # fmt: skip
    return cells


@pytest.fixture
def published(tmp_path: Path) -> Path:
    shutil.copy(GOLDEN / "toy_table1.published.csv", tmp_path / "toy_table1.csv")
    return tmp_path


@pytest.fixture
def toy(published: Path) -> Table:
    stand_ins = dict.fromkeys("abc", "digits for photographs")
    results = build_results(toy_spec(), "quick", toy_cells(), published)
    return as_table(replace(results, stand_ins=stand_ins))


def test_golden(toy: Table, tmp_path: Path) -> None:
    """Old files are replaced, and no others are left."""
    (tmp_path / "toy_table1.md").write_text("old")
    write(toy, tmp_path)
    names = {path.name for path in tmp_path.iterdir() if path.name.startswith((".", "toy_table1."))}
    assert names == {f"toy_table1.{suffix}" for suffix in ("csv", "md", "tex")}
    for name in names:
        assert (tmp_path / name).read_text() == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("metric", "split", "best", "label"),
    [
        ("client_worst", "validation", "fedavg", "Accuracy of the worst client in %"),
        ("unseen_spread", "unseen", "fedprox", "Standard deviation of accuracies over unseen clients in %"),
    ],
)
def test_metrics_over_clients(tmp_path: Path, metric: str, split: str, best: str, label: str) -> None:
    """FedAvg has 50 and 54, FedProx 30 and 34. The highest worst accuracy is best, and the lowest spread."""
    spec, results = toy_table(("fedavg", "fedprox"), seeds=2, metric=metric), ResultsFolder(tmp_path).open()
    cells = plan(spec, "quick")
    for (row, _), cell in cells.items():
        for run in cell.runs:
            value = {"fedavg": 0.5, "fedprox": 0.3}[row] + 0.04 * run.seed
            finish(results, run, final={split: {metric: value}, "test": {metric: 0.9}})
    text = as_markdown(collect(spec, "quick", cells, RunIndex(results)))
    mean = {"fedavg": "52.00", "fedprox": "32.00"}[best]
    assert f"| {best} | **{mean} ± 2.83** |" in text and text.count("± 2.83**") == 1
    assert f"{label}, last round" in text


@pytest.mark.parametrize("dataset, replaced", [("digits", False), ("digits_fmnist", True)])
def test_caption_names_other_data(tmp_path: Path, dataset: str, replaced: bool) -> None:
    """In a table of one's own only data that stands for another is in place of what is named."""
    spec = toy_table(["fedavg"], columns=[{"key": "a", "label": "A", "dataset": dataset}])
    results = collect(spec, "quick", plan(spec, "quick"), RunIndex(ResultsFolder(tmp_path).open()))
    assert ("other data in place of those that are named" in as_markdown(results)) == replaced


def test_on_a_terminal(toy: Table) -> None:
    """Numbers with their marks, the published ones below, missing seeds, and whose method is the paper's own."""
    shown = terminal.render(toy, with_notes=False, width=150)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for line in (
        "Method Digits A Digits B Digits Average C Fog Late",
        "FedAvg 62.00 ± 2.00 81.00 ± 1.41 (n=2 of 3) 71.00 ± 1.41 (n=2 of 3) 50.00 (n=1 of 3) – –",
        "60.00 ± 1.50 80.00 70.00",
        "FedProx 71.00 ± 1.00 90.00 ± 0.00 80.50 ± 0.50 3 missing – –",
        "FedAvgM 70.50 ± 1.50† 90.00 ± 1.00 80.25 ± 1.25† 55.00 ± 0.00 – –",
        "Fed_X & 50% (own) – – – – – –",
    ):
        assert line in lines, shown
    narrow = terminal.render(toy, with_notes=False, width=60)
    assert max(map(len, narrow.splitlines())) <= 60 and "…" not in narrow, "no number is cut"
    assert "Legend" not in shown, "the notes were not asked for"


@pytest.mark.parametrize(
    ("show", "cell"),
    [("measured", "62.00 ± 2.00"), ("published", "60.00 ± 1.50")],
)
def test_one_kind_of_numbers(published: Path, show: Show, cell: str) -> None:
    table = as_table(build_results(toy_spec(), "quick", toy_cells(), folder=published), show)
    assert f"| FedAvg | {cell} |" in markdown.render(table)
    assert "<sub>" not in markdown.render(table) and r"\scriptsize published" not in latex.render(table)
    without = toy_spec().model_copy(update={"published": ()})
    assert as_table(build_results(without, "quick", {}), show).show == "measured"
    check_show([toy_spec(), without], show)
    if show != "measured":
        with pytest.raises(ConfigError, match=f"show: got '{show}'; .*toy_table1 has no published numbers"):
            check_show([without], show)


def test_differences_to_the_base_row(published: Path) -> None:
    """Published: 70 - 60. In B FedAvg diverged with one seed, and FedAvgM has another processor with a second one."""
    cells = toy_cells()
    of_fedavg = tuple(replace(run, processor="x") for run in cells["fedavg", "b"].runs)
    others = tuple(
        replace(run, processor=name) for run, name in zip(cells["fedavgm", "b"].runs, "xyx", strict=True)
    )
    cells |= {("fedavg", "b"): Cell("ok", of_fedavg), ("fedavgm", "b"): Cell("ok", others)}
    results = build_results(toy_spec(), "quick", cells, published)
    table = as_table(results, "difference")
    first, second, third = (line.split(" | ")[:3] for line in markdown.render(table).splitlines()[6:9])
    assert first[1] == "62.00 ± 2.00<br><sub>60.00 ± 1.50</sub>"
    assert second[1] == r"+9.00 \[+6.52, +11.48\]<br><sub>+10.00</sub>"
    assert third[2] == "+10.00 (n=1 of 3, 2 without a pair)"
    assert table.data.to_csv(index=False).splitlines()[7].endswith(",fedavg,9.0,6.515862,11.484138,3,10.0,,")
    assert r"$+9.00\ [+6.52, +11.48]$" in latex.render(table)
    assert "+9.00 [+6.52, +11.48] " in terminal.render(table, with_notes=False, width=150)

    against = as_table(results, "difference", "fedprox")
    assert "Other rows than FedProx: difference to it" in against.caption
    assert "not resolved if the interval contains zero" in against.caption
    assert "| FedProx | 71.00 ± 1.00<br>" in markdown.render(against), "no mark for the best"
    row = markdown.render(against).splitlines()[8]
    assert row.startswith(r"| FedAvgM | -0.50 \[-3.79, +2.79\]<br><sub>+5.00</sub> |")
    with pytest.raises(ConfigError, match=r"base: got 'fedpox'; expected a row of .*Did you mean 'fedprox'"):
        check_show([toy_spec()], "difference", "fedpox")
    with pytest.raises(ConfigError, match="show: got 'both'; expected difference, because base= is given"):
        check_show([toy_spec()], "both", "fedprox")


def test_what_others_measured(published: Path) -> None:
    """Below the published number. Their differences are paired by the place of the seed: 3 5 4 is 4 +- 2.484138."""
    lines = [
        "fedavg,a,accuracy,60.00,1.00,3,%,,59;60;61",
        "fedprox,a,accuracy,64.00,1.50,3,%,other code,62;65;65",
    ]
    head = "method,setting,metric,mean,std,n_seeds,unit,note,seeds"
    (published / "others.csv").write_text("\n".join([head, *lines]) + "\n")
    spec = toy_spec().model_copy(update={"reproductions": ("others.csv",)})
    results = build_results(spec, "quick", toy_cells(), published)
    table = as_table(results)
    text = markdown.render(table)
    assert "Small print: published, below it reproduced by others." in text
    assert "| FedProx | **71.00 ± 1.00**<br><sub>70.00</sub><br><sub>64.00 ± 1.50</sub> |" in text
    assert table.data.to_csv(index=False).splitlines()[7].endswith(",64.00,1.50,3,other code,62;65;65")
    assert r"\scriptsize \quad reproduced by others & \scriptsize $64.00 \pm 1.50$" in latex.render(table)
    shown = [line.split() for line in terminal.render(table, with_notes=False).splitlines()]
    assert ["64.00", "±", "1.50"] in [line[:3] for line in shown]
    small = markdown.cell_text(results.cells["fedprox", "a"], "difference").split("<br>")[1:]
    assert small == ["<sub>+10.00</sub>", r"<sub>+4.00 \[+1.52, +6.48\]</sub>"]


def test_text_tables() -> None:
    """Of an analysis: numbers with the digits asked for, NaN empty, markup escaped, the CSV unrounded."""
    data = pd.DataFrame({"a|b": ["x*y", "z"], "n": [1, 2], "mean": [1 / 3, float("nan")]})
    table = text_table("toy", "Title & more", data, ("First |note|.", "Second."), decimals=2)
    assert markdown.render(table) == (
        "# Title & more\n\n| a\\|b | n | mean |\n| --- | --- | --- |\n| x\\*y | 1 | 0.33 |\n| z | 2 |  |\n\n"
        "First |note|.\n\nSecond.\n"
    )
    printed = latex.render(table)
    assert "a\\textbar{}b & n & mean \\\\\n\\midrule\nx*y & $1$ & $0.33$ \\\\" in printed
    assert r"\begin{tabular}{lrr}" in printed
    assert "\\caption{Title \\& more}" in printed and "\\label{tab:toy}" in printed
    assert table.data.to_csv(index=False).splitlines()[1] == "x*y,1,0.3333333333333333"
    shown = terminal.render(table)
    assert "Title & more" in shown and "0.33" in shown and "Second." in shown


def test_a_finished_run_without_a_finite_number_is_never_a_result() -> None:
    assert (CellRun(0, "done", float("nan")).outcome, CellRun(0, "done").outcome) == ("diverged", "missing")
    assert CellRun(0, "failed", 0.9).value is None


def test_a_lone_seed_has_no_spread_and_no_test(published: Path) -> None:
    cells = {key: Cell(cell.state, cell.runs[:1]) for key, cell in toy_cells().items()}
    results = build_results(toy_spec(), "quick", cells, folder=published)
    assert markdown.cell_text(results.cells["fedavgm", "a"], "measured") == "**70.50**"
    assert markdown.cell_text(results.cells["fedprox", "a"], "measured") == "<ins>70.00</ins>"
    assert "one seed" in as_markdown(results)


def test_an_average_needs_every_part_of_a_seed(published: Path) -> None:
    cells = toy_cells()
    cells["fedprox", "b"] = Cell("ok", (CellRun(0, "done", 0.9), CellRun(2, "running")))
    average = build_results(toy_spec(), "quick", cells, folder=published).cells["fedprox", "digits/avg"]
    assert [(run.seed, run.outcome) for run in average.runs] == [(0, "done"), (1, "missing"), (2, "running")]
    assert average.values == {0: 80.0}
    assert not average.complete


def test_what_a_table_says_of_its_settings(published: Path) -> None:
    """Best on test in every column; nothing of published numbers where there are none."""
    spec = toy_spec().model_copy(update={"which_round": {"quick": "best_test"}})
    text = as_markdown(build_results(spec, "quick", {}, folder=published))
    assert text.splitlines()[4].count("(best on test)") == 6
    table = as_table(build_results(toy_spec().model_copy(update={"published": ()}), "quick", toy_cells()))
    said = markdown.render(table) + latex.render(table)
    assert "published" not in said and "the paper" not in said and "(own): what the table is about." in said


def test_wide_tables_are_cut_into_blocks_of_whole_groups() -> None:
    table = as_table(build_results(load_spec(CONF / "table" / "fedmr_table1.yaml"), "quick", {}))
    names = ["FMNIST", "SVHN", "CIFAR-10", "CIFAR-100"]
    assert [(block.title, len(block.columns)) for block in table.blocks] == [(name, 6) for name in names]
    assert markdown.render(table).count("\n## ") == 4
    assert latex.render(table).count(r"\begin{tabular}") == 4


NASTY = (
    "<script>alert('1')</script> & \"b\" &lt; &#60;",
    "$(touch x) `touch y` $x$; 100 % of _x_ and a_b, x^2 ~ {3}",
    r"back\slash \input{x} \\ [a](b:c) ![c](d) **e** ~~f~~",
    "# not a heading | no column",
    "[red]no colour[/red] :smile: 🎲 é",
    "two\nlines, \x1b[31mred",
)


@pytest.mark.parametrize("text", NASTY)
def test_names_stay_text(text: str, tmp_path: Path) -> None:
    """What a reader of each format sees is the name; a line break is a space, a control character a question mark."""
    table = text_table("toy", text, pd.DataFrame({text: [text], "n": [1]}), (text,), decimals=2)
    seen = text.replace("\x1b", "?")
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.render(table))
    shown = [token for token in tokens if token.type == "inline"]
    assert [token.children and "".join(t.content for t in token.children) for token in shown] == [
        part.replace("\n", " ") for part in (seen, seen, "n", seen, "1", seen)
    ]
    assert {child.type for token in shown for child in token.children or ()} <= {"text", "text_special"}
    (tmp_path / "toy.csv").write_text(table.data.to_csv(index=False))
    assert pd.read_csv(tmp_path / "toy.csv").to_dict("list") == {text: [text], "n": [1]}
    assert all(line in terminal.render(table) for line in seen.split("\n"))
    assert shlex.split(TableQuery(results=Path(text)).command("status"))[-1] == f"results={text}"
    printed = latex.render(table)
    assert "\x1b" not in printed and printed.count(r"\input{x}") == 0 and "🎲" not in printed


def _pdflatex(folder: Path, name: str) -> str:
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert result.returncode == 0, result.stdout[-2000:]
    return result.stdout


def _has_latex() -> bool:
    words = ["kpsewhich", "booktabs.sty"]
    return bool(shutil.which("pdflatex")) and not subprocess.run(words, capture_output=True).returncode


def _hostile(published: Path) -> Table:
    """Names that are no LaTeX, and longer than a line."""
    spec = toy_spec()
    rows, columns = zip(spec.rows, NASTY, strict=False), zip(spec.columns, NASTY, strict=False)
    changes = {
        "rows": tuple(row.model_copy(update={"label": text}) for row, text in rows),
        "columns": tuple(
            column.model_copy(update={"label": text, "group": text * 2}) for column, text in columns
        ),
        "title": " ".join(NASTY),
    }
    spec = spec.model_copy(update=changes)
    return as_table(build_results(spec, "quick", toy_cells(), folder=published))


@pytest.mark.skipif(not _has_latex(), reason="pdflatex is not installed")
def test_latex_compiles_as_it_is_and_included(published: Path, toy: Table, tmp_path: Path) -> None:
    specs = [load_spec(CONF / "table" / f"{name}.yaml") for name in ("fedmr_table1", "feddiverse_table3")]
    words = text_table("words", "[x] & y", pd.DataFrame({text: [text, "-1.50"] for text in NASTY}), NASTY)
    empty = [as_table(build_results(spec, "paper", {})) for spec in specs]
    inputs = ""
    for table in (toy, replace(_hostile(published), name="hostile"), words, *empty):
        write(table, tmp_path)
        assert "Overfull" not in _pdflatex(tmp_path, f"{table.name}.tex"), table.name
        inputs += rf"Text. \input{{{table.name}.tex}} \clearpage "
    preamble = r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx}"
    (tmp_path / "main.tex").write_text(rf"{preamble}\begin{{document}}{inputs}\end{{document}}")
    _pdflatex(tmp_path, "main.tex")
    assert (tmp_path / "main.pdf").stat().st_size > 0
