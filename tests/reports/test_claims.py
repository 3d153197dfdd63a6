"""All comparisons of a table, their verdicts.

Toy table, in percent: FedAvg 60 62 64, FedProx 70 71 72, FedAvgM 70.5 69 72. With two degrees of freedom t must exceed
7.6488, 6.2053 and 4.302653 at 0.05/3, 0.05/2 and 0.05. FedProx - FedAvg is 9 with error 1 / sqrt 3, t = 15.6. FedAvgM -
FedAvg = 10.5 7 8 has mean 8.5, squared deviations 4 2.25 0.25 and error sqrt(3.25 / 3), t = 8.2. FedAvgM - FedProx =
-0.5 +- 3.286224 (test_tables.py) is not rejected.
"""

import math
from pathlib import Path

import pytest
from finished_runs import toy_table

from benchmark.reports import claims
from benchmark.reports.claims import verdict
from benchmark.reports.render import markdown
from benchmark.reports.results import Cell, CellRun, TableResults, build_results
from benchmark.reports.statistics import Difference

GOLDEN = Path(__file__).parent / "golden"
HEAD = "method,setting,metric,mean,std,n_seeds,unit,note"
VALUES = {"fedavg": (0.60, 0.62, 0.64), "fedprox": (0.70, 0.71, 0.72), "fedavgm": (0.705, 0.69, 0.72)}


def toy(tmp_path: Path, metric: str = "accuracy", other: str = "") -> TableResults:
    """One baseline and two own rows; the paper prints SDs for the baseline and the first of these."""
    numbers = ["fedavg,a,accuracy,60.00,1.50,5,%,", "fedprox,a,accuracy,70.00,1.50,5,%,"]
    numbers += ["fedavgm,a,accuracy,75.00,,,%,"]
    (tmp_path / "toy.csv").write_text("\n".join([HEAD, *numbers]) + "\n")
    rows = [{"key": key, "label": key, "method": key, "own": key != "fedavg"} for key in VALUES]
    spec = toy_table((), rows=rows, published="toy.csv", metric=metric, published_metric="accuracy")
    cells = {
        (row, "a"): Cell(
            "ok",
            tuple(
                CellRun(seed, "done", value, differs="torch 2.11" * (row == other))
                for seed, value in enumerate(values)
            ),
        )
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
    assert len(made.data.to_csv(index=False).splitlines()) == 4


def test_a_pair_of_runs_made_in_another_way_is_marked(tmp_path: Path) -> None:
    lines = markdown.render(claims.as_table(toy(tmp_path, other="fedavg"))).splitlines()
    assert [line.count("‡") for line in lines if line.startswith("| fed")] == [1, 1, 0]


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
        (pairs(1, 3), pairs(-8, -7), "better, but published as worse; not -7.50"),
        (pairs(1, 3), pairs(-8, 7), "better"),
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
