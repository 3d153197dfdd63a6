"""The leaderboard: differences, ranks and frozen versions by hand, and what methods cost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from finished_runs import drawn, finish

from benchmark.experiments.figures import FIGURE_FOLDER, load_figure
from benchmark.experiments.plan import PlannedCell, plan
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import TunedCell, TunedTable
from benchmark.papers import comparison, frozen, leaderboard
from benchmark.papers.leaderboard import costs
from benchmark.papers.registry import LeaderboardOptions
from benchmark.reports.collect import collect
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

ROWS = ("fedavg", "fedavg_m0", "fednova", "feddisco", "scaffold", "moon")
COLUMNS = ("fmnist/p10c2", "cmnist_gsc")
FMNIST, CMNIST = "FMNIST P10C2", "CMNIST GSC, worst group"
REACHED = {
    "fedavg": (0.5 + 4e-10, 0.6), "fedavg_m0": (0.4, 0.5), "fednova": (0.7, None), "feddisco": (0.5 + 4e-10, 0.6),
    "scaffold": (0.6, 0.8), "moon": (0.9, 0.9),
}  # fmt: skip
"""Row -> what its two seeds reach, in both columns; FedNova diverges with the second, FedDisco is FedAvg.

4e-10 is lost in a stored version, which has six decimals of a percentage.
"""


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TableSpec]:
    """Both tables with four rows and two columns, without costs and versions of the project."""
    found = {name: spec_called(name).cut(ROWS, COLUMNS) for name in frozen.TRACKS.values()}
    monkeypatch.setattr(leaderboard, "spec_called", found.__getitem__)
    monkeypatch.setattr(
        leaderboard, "costs", lambda spec, cells: {row.label: {"time": len(spec.rows)} for row in spec.rows}
    )
    monkeypatch.setattr(frozen, "COMMITTED", tmp_path / "committed")
    return found


SEEDS = range(6, 8)


def carry_out(spec: TableSpec, folder: Path, rows: tuple[str, ...] = ROWS) -> None:
    """Lay down the runs of two seeds, but for one of MOON on CMNIST."""
    results = ResultsFolder(folder).open()
    how: dict[str, Any] = {"origin": {"threads": 2}, "made": {"commit": "abc", "processor": "one"}}
    for (row, column), cell in plan(spec.cut(rows, COLUMNS), "quick", SEEDS).items():
        for run, value in zip(cell.runs, REACHED[row], strict=True):
            metric: Any = spec.of_column(column).metric
            done: dict[str, Any] = {"final": {"test": {metric: value}}} if value else {"state": "diverged"}
            model = "fedavg" if row == "feddisco" else row
            if (row, column, run.seed) != ("moon", "cmnist_gsc", SEEDS[1]):
                finish(results, run, **done, seconds=1.5, model=f"{model} {run.seed}", **how)


def options(folder: Path, **changes: Any) -> LeaderboardOptions:
    return LeaderboardOptions(results=folder, seeds=2, **changes)


def test_differences_ranks_and_the_diagram(tmp_path: Path, specs: dict[str, TableSpec]) -> None:
    """Means 55, 45, 55 and 70 in both columns. FedNova diverges with a seed, and MOON lacks a run."""
    spec = specs["leaderboard"]
    ResultsFolder(tmp_path).open()
    assert leaderboard.leaderboard(options(tmp_path)).data.empty
    carry_out(spec, tmp_path)
    table = leaderboard.leaderboard(options(tmp_path))
    data = table.data.set_index("method")
    plain = "FedAvg without momentum"
    assert data["rank"].dropna().to_dict() == {"SCAFFOLD": 1, "FedAvg": 2.5, "FedDisco": 2.5, plain: 4}
    # SCAFFOLD minus FedAvg without momentum is 20 and 30: mean 25, half width t(0.975, 1) x sd / sqrt(2) = 12.7062 x
    # 7.0711 / 1.4142 = 63.53. Without momentum minus with it is -10 twice, which no correction hides.
    assert data[FMNIST].to_dict() == {
        "SCAFFOLD": "70.00 (+25.00 [-38.53, 88.53])", "FedAvg": "55.00", "FedNova": "70.00 (n=1 of 2)",
        "FedDisco": "55.00 (=)", plain: "45.00 (-10.00 [-10.00, -10.00]*)", "MOON": "90.00 (+35.00 [-28.53, 98.53])",
    }  # fmt: skip
    assert data["runs"].to_dict() == dict.fromkeys(
        ("SCAFFOLD", "FedAvg", "FedNova", "FedDisco", plain), 12
    ) | {"MOON": 9}  # 1.5 s x 2
    assert set(data["time"]) == {6}
    notes = " ".join(note.lines[0] for note in table.notes)
    # q 2.569 of the published table, times sqrt(4 x 5 / (6 x 2)) = 1.291.
    assert (
        "4 methods, 2 data sets" in notes and "(Nemenyi, 5 %): 3.32. It tells apart: no two methods." in notes
    )
    assert f"sensitive, not ranked, as runs diverged: FedNova ({FMNIST}, {CMNIST})." in notes
    assert "Track default: not ranked, as runs with FedAvg's seeds are missing: MOON." in notes
    assert data.loc["MOON", CMNIST] == "90.00 (n=1 of 2)"
    figure = load_figure(FIGURE_FOLDER / "leaderboard.yaml")
    drawing = drawn(figure.model_copy(update={"rows": ROWS, "columns": COLUMNS}), tmp_path)
    (axis,) = drawing.figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["SCAFFOLD", "FedAvg", "FedDisco", plain]
    assert drawing.remarks[1] == "Not ranked, as runs are missing or diverged: FedNova, MOON."


def test_a_version_is_stored_and_joined_by_another_method(
    tmp_path: Path, specs: dict[str, TableSpec]
) -> None:
    first, second, day, later = tmp_path / "first", tmp_path / "second", "2026-01-31", "2026-01-31b"
    carry_out(specs["leaderboard"], first)
    ranks = leaderboard.leaderboard(options(first, freeze=day)).data
    folder = first / "leaderboard"
    assert len(pd.read_csv(folder / "results.csv")) == 23
    numbers = pd.read_csv(folder / "ranks.csv").set_index("method").loc["SCAFFOLD"]
    assert numbers[f"{CMNIST} difference"] == 25 and round(numbers[f"{CMNIST} low"], 2) == -38.53
    text = (folder / "commands.md").read_text()
    assert "commit: abc." in text and "processor: one AVX2." in text and "freeze=2026-01-31" in text

    # Elsewhere only FedAvg and MOON are run, by a lab whose runs are imported; MOON's complete cell counts, and all
    # others come from the version.
    folder.rename(tmp_path / "committed")
    carry_out(specs["leaderboard"], second, ("fedavg", "moon"))
    (second / "imported").mkdir()
    (second / "runs").rename(second / "imported" / "lab")
    joined = leaderboard.leaderboard(options(second, freeze=later)).data
    assert joined[["method", "rank", FMNIST, CMNIST]].equals(ranks[["method", "rank", FMNIST, CMNIST]])
    rows = pd.read_csv(second / "leaderboard" / "results.csv")
    assert rows.groupby("version")["row"].unique().map(set).to_dict() == {
        day: {"fedavg_m0", "fednova", "feddisco", "scaffold", "moon"}, later: {"fedavg", "moon"},
    }  # fmt: skip
    assert set(rows.loc[rows["by"] == "lab", "version"]) == {later}
    version = frozen.newest(second, "quick")
    assert version is not None and version.name == later


def test_a_cell_without_a_fedavg_to_pair_with_does_not_replace_that_of_a_version(
    tmp_path: Path, specs: dict[str, TableSpec]
) -> None:
    """SCAFFOLD alone is run elsewhere: the version keeps its cells, and so their differences (25 on CMNIST)."""
    first, second = tmp_path / "first", tmp_path / "second"
    carry_out(specs["leaderboard"], first)
    leaderboard.leaderboard(options(first, freeze="2026-01-31"))
    (first / "leaderboard").rename(tmp_path / "committed")
    carry_out(specs["leaderboard"], second, ("scaffold",))
    leaderboard.leaderboard(options(second, freeze="2026-02-01"))
    numbers = pd.read_csv(second / "leaderboard" / "ranks.csv").set_index("method").loc["SCAFFOLD"]
    assert numbers[f"{CMNIST} difference"] == 25


def test_other_seeds_than_those_of_the_version(tmp_path: Path, specs: dict[str, TableSpec]) -> None:
    """FedAvg and MOON have the first seed here, the others both seeds in the version: only MOON has FedAvg's."""
    first, second = tmp_path / "first", tmp_path / "second"
    carry_out(specs["leaderboard"], first)
    leaderboard.leaderboard(options(first, freeze="2026-01-31"))
    (first / "leaderboard").rename(tmp_path / "committed")
    carry_out(specs["leaderboard"], second, ("fedavg", "moon"))
    table = leaderboard.leaderboard(LeaderboardOptions(results=second, seeds=1))
    assert set(table.data.dropna(subset="rank")["method"]) == {"FedAvg", "MOON"}


def test_values_stand_beside_their_own_runs(tmp_path: Path, specs: dict[str, TableSpec]) -> None:
    """MOON's cell comes from the version, so its values do too; FedNova's runs and values are from here."""
    runs = pd.DataFrame([("moon", "cmnist_gsc", "2026-01-31"), ("fednova", "cmnist_gsc", "")],
                        columns=["row", "data", "version"])  # fmt: skip

    def chosen(lr: float) -> TunedTable:
        cell = TunedCell(
            method="x", chosen={"train.lr": lr}, metric="accuracy", which_round="last", split=0.1, seeds=1
        )
        return TunedTable(table="leaderboard_tuned", preset="quick", cells={
            row: {"cmnist_gsc": cell} for row in ("moon", "fednova")
        })  # fmt: skip

    old = frozen.Version("2026-01-31", runs, runs, runs, chosen(0.1))
    found = leaderboard.tuned_of(runs, chosen(9.0), old)
    assert {row: cells["cmnist_gsc"].chosen["train.lr"] for row, cells in found.items()} == {
        "fednova": 9.0, "moon": 0.1,
    }  # fmt: skip


def test_a_row_without_its_base_is_compared_with_none() -> None:
    spec = spec_called("leaderboard")
    assert spec.base_of(spec.row("fedprox")).key == "fedavg_m0"
    part = spec.cut(["fedavg", "fedprox", "moon"], ["cmnist_gsc"])
    assert (
        part.base_of(part.row("fedprox")).key == "fedprox" and part.base_of(part.row("moon")).key == "fedavg"
    )


def test_a_row_whose_base_has_no_runs(tmp_path: Path, specs: dict[str, TableSpec]) -> None:
    """As in a tuned track of which FedAvg is not tuned yet."""
    spec, index = specs["leaderboard"], RunIndex(ResultsFolder(tmp_path))
    carry_out(spec, tmp_path, ("scaffold",))
    cells = plan(spec, "quick", SEEDS)
    for column in COLUMNS:
        cells["fedavg_m0", column] = PlannedCell("fedavg_m0", column, "not tuned")
    runs = leaderboard.runs_of("tuned", collect(spec, "quick", cells, index), index)
    assert set(runs["row"]) == {"scaffold"} and runs["difference"].isna().all() and not runs["same"].any()


def test_the_comparison_of_a_version_without_runs_here(tmp_path: Path, specs: dict[str, TableSpec]) -> None:
    """SCAFFOLD is 20 and 30 points above FedAvg without momentum, whose interval holds zero: a tie."""
    first, here = tmp_path / "first", tmp_path / "here"
    ResultsFolder(here).open()
    query = TableQuery(results=here, seeds=2)
    assert comparison.board(query, RunIndex(ResultsFolder(here)), {}) is None
    carry_out(specs["leaderboard"], first)
    leaderboard.leaderboard(options(first, freeze="2026-01-31"))
    (first / "leaderboard").rename(tmp_path / "committed")
    board = comparison.board(query, RunIndex(ResultsFolder(here)), {})
    assert board is not None
    line = board.content["tracks"]["default"]["scaffold"]
    assert line["status"] == "measured at quick, version 2026-01-31" and line["costs"]["time"] == 6
    assert line["cells"]["cmnist_gsc"]["difference"] == 25 and line["rank"][0] == 1
    wins = board.content["wins"]["default"]
    # Without momentum is 10 below with it, twice. MOON has one run on CMNIST, FedNova one value on each data set.
    assert wins["fedavg_m0"] == {
        "fedavg": "--", "fednova": "..", "feddisco": "--", "scaffold": "==", "moon": "=.",
    }  # fmt: skip
    assert wins["fedavg"]["fedavg_m0"] == "++" and wins["feddisco"]["fedavg"] == "=="
    table = board.tables["board-wins"]["default"].data.set_index("method")
    assert table.loc["FedAvg", "FedAvg without momentum"] == "2/0/0" and table.loc["MOON", "MOON"] == ""
    assert table.loc["FedNova", "FedAvg"] == "–"
    assert board.content["tracks"]["tuned"] == {} and board.content["data"][0]["label"] == FMNIST


def test_costs_in_model_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of length d sent up and down, kept by a client and by the server."""
    monkeypatch.setattr(leaderboard, "REPEATS", 1)
    monkeypatch.setattr(leaderboard, "ROUNDS", 1)
    rows = "fedavg fedavgm fedadam scaffold feddyn feddc moon fedmr fedrep fedpac hcsfed".split()
    spec = spec_called("leaderboard").cut(rows, ["fmnist/p10c2"])
    prices = pd.DataFrame(costs(spec, plan(spec, "quick", range(1))))
    # FedMR: C h = 10 x 64 features and 10 counts up, features, 10 flags and the converted mu1 down; the MLP on 8 x 8
    # images has (64 64 + 64) + (64 10 + 10) = 4,810 parameters. FedRep's head (650) stays. FedPAC's takes the place of
    # the model's own; beside it go up V, H, class sums and counts (1 + 640 + 640 + 10), and down features and flags
    # (640 + 10).
    head, several = 650 / 4810, 1291 / 4810
    expected = {
        "FedAvg": (1, 1, 0, 0),
        "FedAvgM": (1, 1, 0, 1),
        "FedAdam": (1, 1, 0, 2),
        "SCAFFOLD": (2, 2, 1, 1),
        "FedDyn": (1, 1, 1, 1),
        "FedDC": (2, 2, 2, 2),
        "MOON": (1, 1, 1, 0),
        "FedMR": (1 + head, 1 + 651 / 4810),
        "FedRep": (1 - head, 1 - head, head),
        "FedPAC": (1 + several, 1 + head),
    }
    for method, counted in expected.items():
        line = prices.loc[["up", "down", "client", "server"], method]
        assert tuple(line)[: len(counted)] == pytest.approx(counted, abs=1e-9), method
    assert "HCSFed" not in prices  # one client cannot be put into its clusters
    assert prices.loc["time", "FedAvg"] == 1.0 and prices.loc["time", "MOON"] > 0


def test_what_diverges_has_no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg without momentum at the rate 1e30, beside FedAvg."""
    monkeypatch.setattr(leaderboard, "REPEATS", 1)
    monkeypatch.setattr(leaderboard, "ROUNDS", 1)
    spec = spec_called("leaderboard").cut(["fedavg", "fedavg_m0"], ["fmnist/p10c2"])
    cells = dict(plan(spec, "quick", range(1)))
    cell = cells["fedavg_m0", "fmnist/p10c2"]
    train = cell.runs[0].train.model_copy(update={"lr": 1e30})
    cells["fedavg_m0", "fmnist/p10c2"] = replace(
        cell, runs=(cell.runs[0].model_copy(update={"train": train}),)
    )
    assert list(costs(spec, cells)) == ["FedAvg"]
