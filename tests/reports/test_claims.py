"""All comparisons of a table, their verdicts, and tables whose values are read from a CSV.

Toy table, in percent: FedAvg 60 62 64, FedProx 70 71 72, FedAvgM 70.5 69 72. With two degrees of freedom t must exceed
7.6488, 6.2053 and 4.302653 at 0.05/3, 0.05/2 and 0.05. FedProx - FedAvg is 9 with error 1 / sqrt 3, t = 15.6. FedAvgM -
FedAvg = 10.5 7 8 has mean 8.5, squared deviations 4 2.25 0.25 and error sqrt(3.25 / 3), t = 8.2. FedAvgM - FedProx =
-0.5 +- 3.286224 (test_tables.py) is not rejected.
"""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from finished_runs import toy_table

from benchmark.cli import figure, table
from benchmark.errors import ConfigError
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import load_spec
from benchmark.paths import CONF, ROOT
from benchmark.reports import claims, layout
from benchmark.reports.claims import verdict
from benchmark.reports.render import csv, markdown
from benchmark.reports.results import Cell, CellRun, TableResults, build_results
from benchmark.reports.statistics import Difference
from benchmark.reports.values import read_cells

GOLDEN = Path(__file__).parent / "golden"
HEAD = "method,setting,metric,mean,std,n_seeds,unit,note"
VALUES = {"fedavg": (0.60, 0.62, 0.64), "fedprox": (0.70, 0.71, 0.72), "fedavgm": (0.705, 0.69, 0.72)}


def toy(tmp_path: Path, metric: str = "accuracy") -> TableResults:
    """One baseline and two own rows; the paper prints SDs for the baseline and the first of these."""
    numbers = ["fedavg,a,accuracy,60.00,1.50,5,%,", "fedprox,a,accuracy,70.00,1.50,5,%,"]
    numbers += ["fedavgm,a,accuracy,75.00,,,%,"]
    (tmp_path / "toy.csv").write_text("\n".join([HEAD, *numbers]) + "\n")
    rows = [{"key": key, "label": key, "method": key, "own": key != "fedavg"} for key in VALUES]
    spec = toy_table((), rows=rows, published="toy.csv", metric=metric, published_metric="accuracy")
    cells = {
        (row, "a"): Cell("ok", tuple(CellRun(seed, "done", value) for seed, value in enumerate(values)))
        for row, values in VALUES.items()
    }
    return build_results(spec, "quick", cells, tmp_path)


def test_all_comparisons(tmp_path: Path) -> None:
    """Published FedProx - FedAvg: error sqrt(2 * 2.25 / 5), 8 degrees of freedom, t = 2.306004: 10 +- 2.187667."""
    made = claims.as_table(toy(tmp_path))
    assert markdown.render(made).splitlines()[4:] == [
        "| A | Published | Here | After Holm | Pairs | Verdict at preset quick |",
        "| --- | --- | --- | --- | --- | --- |",
        r"| fedprox minus fedavg | +10.00 \[+7.81, +12.19\] | +9.00 \[+6.52, +11.48\] | \[+4.58, +13.42\] | 3 "
        "| holds |",
        r"| fedavgm minus fedavg | +15.00 | +8.50 \[+4.02, +12.98\] | \[+2.04, +14.96\] | 3 "
        "| holds; published without spread |",
        r"| fedavgm minus fedprox | +5.00 | -0.50 \[-3.79, +2.79\] | \[-3.79, +2.79\] | 3 "
        "| not resolved; published without spread |",
    ]
    assert "corrected for the 3 intervals of this table" in made.caption
    first = made.data.iloc[0]
    assert (first["row"], first["base"], first["difference_n"], first["verdict"]) == (
        "fedprox",
        "fedavg",
        3,
        "holds",
    )
    numbers = ["difference_low", "published_difference_low", "holm_low"]
    expected = [9 - 4.302653 / math.sqrt(3), 10 - 2.187667, 9 - 7.6488 / math.sqrt(3)]
    assert list(first[numbers]) == pytest.approx(expected, abs=1e-4)
    assert len(csv.render(made).splitlines()) == 4


def test_lower_is_better(tmp_path: Path) -> None:
    """The same numbers of a loss (in its own unit): each gain is a loss."""
    words = [claim.verdict for claim in claims.compare(toy(tmp_path, "loss"))]
    assert words[0].startswith("worse, as published") and words[2].startswith("not resolved")


def pairs(low: float, high: float) -> Difference:
    """A difference of three pairs with this interval."""
    return Difference((low + high) / 2, 3, (high - low) / 2 / 4.302653, 2)


@pytest.mark.parametrize(
    ("measured", "published", "said"),
    [
        (pairs(1, 3), pairs(1, 4), "holds"),
        (pairs(-3, -1), pairs(0.1, 0.3), "does not hold; not +0.20"),
        (pairs(-3, 1), pairs(-4, 6), "not resolved"),
        (pairs(-3, 1), pairs(8, 12), "not resolved; not +10.00"),
        (pairs(-3, -1), pairs(-4, -1), "worse, as published"),
        (pairs(1, 3), pairs(-8, 7), "better, but published as worse"),
        (pairs(1, 3), Difference(2.0), "holds; published without spread"),
        (pairs(1, 3), None, "better; no published number"),
        (pairs(-3, -1), None, "worse; no published number"),
        (Difference(2.0, 1), Difference(2.0), "one pair of runs, no interval; published without spread"),
        (Difference(2.0, 1), pairs(1, 3), "one pair of runs, no interval"),
        (None, pairs(1, 3), "not measured"),
    ],
)
def test_verdicts(measured: Difference | None, published: Difference | None, said: str) -> None:
    assert verdict(measured, published, measured.interval if measured else None) == said


def test_a_verdict_says_where_the_correction_matters() -> None:
    said = verdict(pairs(1, 3), pairs(1, 3), (-1.0, 5.0))
    assert said == "holds; not resolved after Holm's correction"


# Values of a CSV ----------------------------------------------------------------------------------------------------


def written(tmp_path: Path) -> tuple[TableSpec, Path, str]:
    """The toy table with every outcome of a run, two processors in a cell and a mark, written as CSV."""
    spec, cells = load_spec(GOLDEN / "toy_table1.yaml"), {}
    for row, values in VALUES.items():
        runs = [CellRun(seed, "done", value, f"runs/{row}/seed{seed}") for seed, value in enumerate(values)]
        runs = [replace(run, processor="x y=z" if run.seed else row, differs="other threads") for run in runs]
        cells[row, "a"] = Cell("ok", tuple(runs))
        cells[row, "b"] = Cell(
            "ok", (*runs[:2], CellRun(2, "diverged", run="runs/b/seed2"), CellRun(5, "missing"))
        )
        cells[row, "late"] = Cell("not in this preset")
    text = csv.render(layout.as_table(build_results(spec, "quick", cells, tmp_path), "difference"))
    (tmp_path / "values.csv").write_text(text)
    return spec, tmp_path / "values.csv", text


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    """The same numbers, averages, pairs and marks. Of fewer rows and columns the others are ignored."""
    (tmp_path / "toy_table1.csv").write_text((GOLDEN / "toy_table1.published.csv").read_text())
    spec, path, text = written(tmp_path)
    results = build_results(spec, "quick", read_cells(spec, "quick", path), tmp_path)
    assert csv.render(layout.as_table(results, "difference")) == text
    difference = results.cells["fedprox", "a"].difference
    assert difference is not None and difference.n == 2, "seed 0 has another processor"
    part = spec.cut(["fedavg", "fedx"], ["b"])
    cells = build_results(part, "quick", read_cells(part, "quick", path), tmp_path).cells
    assert {key: cell.outcome for key, cell in cells.items()} == {
        ("fedavg", "b"): "diverged",
        ("fedx", "b"): "missing",
    }


def test_files_that_are_no_such_table(tmp_path: Path) -> None:
    (tmp_path / "toy_table1.csv").write_text((GOLDEN / "toy_table1.published.csv").read_text())
    spec, path, _ = written(tmp_path)
    with pytest.raises(
        ConfigError, match=r"got toy_table1 at preset quick in .*; expected .* at preset paper"
    ):
        read_cells(spec, "paper", path)
    path.write_text("row,column\na,b\n")
    with pytest.raises(ConfigError, match="cannot be read as a written table: 'table'"):
        read_cells(spec, "quick", path)
    path.write_text("table,preset,row,column,seeds,status,runs\ntoy_table1,quick,fedavg,a,0=what,done,\n")
    with pytest.raises(ConfigError, match="cannot be read as a written table: could not convert"):
        read_cells(spec, "quick", path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_cells(spec, "quick", tmp_path / "nowhere.csv")


def test_the_commands_take_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file as older versions wrote it, without processors. No run is carried out, and no data is read."""
    lines = [f"fedsdc_table1,small,{row},iid,{seeds},done," for row, seeds in (
        ("fedavgm", "0=70.0;1=71.0;2=72.0"), ("fedadam", "0=60.0;1=62.0;2=64.0"), ("fedsdc", "0=70.5;1=69.0;2=72.0"))
    ]  # fmt: skip
    (tmp_path / "fedsdc_table1.csv").write_text(
        "\n".join(["table,preset,row,column,seeds,status,runs", *lines])
    )
    words = [
        "preset=small",
        f"values={tmp_path}",
        f"out={tmp_path / 'out'}",
        f"results={tmp_path / 'results'}",
    ]
    assert table.main(["name=fedsdc_table1", "show=difference", "base=own", *words]) == 0
    data = pd.read_csv(tmp_path / "out" / "fedsdc_table1.csv").set_index(["column", "row", "base"])
    assert list(data.loc[("iid", "fedsdc", "fedavgm"), ["difference", "difference_n"]]) == [-0.5, 3]
    assert data.loc[("iid", "fedsdc", "fedadam"), "published_difference"] == 1.23
    assert data.loc[("niid2", "fedsdc_plus", "fedsdc"), "verdict"] == "not measured"
    assert not (tmp_path / "results").exists()

    monkeypatch.setattr(
        "benchmark.paths.CONF_FOLDERS", [ROOT / "results" / "studies" / "forests" / "conf", CONF]
    )
    assert figure.main(["name=forest_fedsdc_table1", *words]) == 0
    drawn = pd.read_csv(tmp_path / "out" / "forest_fedsdc_table1.csv")
    assert list(drawn[drawn["source"] == "here"]["difference"]) == [-0.5]
    with pytest.raises(ConfigError, match=r"values: .*; expected figures of kind bars or forest"):
        figure.main(["name=fedsdc_figure4", f"values={tmp_path}"])
    with pytest.raises(ConfigError, match="base: got 'own'; expected a row of leaderboard"):
        table.main(["name=leaderboard", "show=difference", "base=own", f"values={tmp_path}"])
    capsys.readouterr()
