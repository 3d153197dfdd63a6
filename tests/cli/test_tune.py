"""``tune``: the validation split chooses, the test set cannot, and tables run what was chosen and say so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import numbers
from finished_runs import finish
from tuned_runs import GRID, Values, config_of, pretend, pretend_grid

from benchmark.engine.records import Record
from benchmark.runs.folder import ResultsFolder

MU = "method.client.fedprox.mu"
ROWS = [
    {"key": "fedavg", "label": "FedAvg", "method": "fedavg"},
    {"key": "prox", "label": "FedProx", "method": "fedprox"},
    {"key": "prox/turns", "label": "FedProx, turns", "method": "fedprox", "selection": "round_robin"},
]
TUNE = ("tune", "method=fedprox", "name=toy_table1", "launcher=inline")
PROX = (*TUNE, "rows=prox")
FILE = Path("results/tuned/quick/toy_table1.yaml")


@pytest.fixture(autouse=True)
def table(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The toy table with two rows of FedProx; no values come with the project."""
    monkeypatch.setattr("benchmark.experiments.tuning.COMMITTED", tmp_path / "committed")

    def change(**changes: Any) -> None:
        toy(**{"rows": ROWS} | changes)

    change()
    return change


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a launch an error."""
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)


@pytest.fixture
def searched(cli: Any, nothing_runs: None) -> None:
    """All runs of the search: 0.01 is the best in column ``iid``, 0.1 in ``dir``."""
    pretend_grid("iid", (0.2, 0.9, 0.3, 0.4))
    pretend_grid("dir", (0.3, 0.1, 0.8, 0.5))


def written() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text()))


def chosen() -> dict[str, float]:
    return {column: cell["chosen"][MU] for column, cell in written()["cells"]["prox"].items()}


def test_validation_decides_where_the_test_set_says_otherwise(cli: Any, nothing_runs: None) -> None:
    pretend_grid("iid", validation=(0.2, 0.9, 0.3, 0.4), test=(0.6, 0.1, 0.7, 0.99))
    code, out, err = cli(*PROX, "columns=iid")
    assert (code, err) == (0, "")
    assert chosen() == {"iid": 0.01}
    # The whole grid is shown, in percent, with the chosen point marked.
    rows = [line.replace("│", " ").split() for line in out.splitlines() if line.startswith("│")]
    assert rows == [["0.001", "20.00"], ["0.01", "90.00", "*"], ["0.1", "30.00"], ["1", "40.00"]]
    assert "toy_table1, preset quick, FedProx, IID: accuracy in % on the validation split, 1 seed" in out

    cell = written()["cells"]["prox"]["iid"]
    assert [point["values"][MU] for point in cell["grid"]] == [*GRID]
    assert [point["validation"] for point in cell["grid"]] == [0.2, 0.9, 0.3, 0.4]
    assert [point["runs"] for point in cell["grid"]] == [[f"runs/{config_of('iid', mu).key}"] for mu in GRID]
    assert (cell["method"], cell["metric"], cell["split"], cell["seeds"]) == ("fedprox", "accuracy", 0.1, 1)
    assert cell["commit"] == "0123456789ab"
    assert cell["command"] == "python -m benchmark tune name=toy_table1 rows=prox columns=iid method=fedprox"
    assert "0.99" not in FILE.read_text() and "0.7" not in FILE.read_text(), "no test value is written"


@pytest.mark.parametrize(
    ("rule", "best_mu", "by_hand"),
    [
        ("mean_last_2", 0.1, [0.6, 0.7, 0.8, 0.15]),
        ("best_validation", 0.001, [0.9, 0.9, 0.8, 0.2]),  # a tie, which the first wins
        ("best_test", 0.001, [0.9, 0.9, 0.8, 0.2]),
    ],
)
def test_the_round_is_the_tables_and_never_the_best_on_test(
    cli: Any, table: Any, nothing_runs: None, rule: str, best_mu: float, by_hand: list[float]
) -> None:
    table(which_round=rule)
    held = ((0.3, 0.9), (0.9, 0.5), (0.8, 0.8), (0.1, 0.2))
    for mu, (first, second) in zip(GRID, held, strict=True):
        test = {1: mu / 2, 2: mu / 3}  # the test set prefers the last point, and in each run the first round
        pretend(config_of("iid", mu), {"test": test, "validation": {1: first, 2: second}})
    assert cli(*PROX, "columns=iid").code == 0
    assert chosen() == {"iid": best_mu}
    values = [point["validation"] for point in written()["cells"]["prox"]["iid"]["grid"]]
    assert values == pytest.approx(by_hand)


def test_a_lower_loss_is_better(cli: Any, table: Any, nothing_runs: None) -> None:
    table(metric="loss")
    for mu, held in zip(GRID, (0.9, 0.8, 0.2, 0.2), strict=True):
        pretend(config_of("iid", mu), {"validation": {2: held}}, metric="loss")
    code, out, _ = cli(*PROX, "columns=iid")
    assert code == 0
    assert "loss on the validation split" in out and "0.20 *" in out
    assert chosen() == {"iid": 0.1}


def test_the_mean_over_seeds_counts_and_a_point_that_diverged_loses(cli: Any, nothing_runs: None) -> None:
    # Means: 0.5, diverged in seed 1, 0.55, 0.55: the smaller of the two best; seed 0 alone would take 0.01.
    for mu, pair in zip(GRID, ((0.4, 0.6), (0.95, None), (0.3, 0.8), (0.5, 0.6)), strict=True):
        for seed, held in enumerate(pair):
            values = {"validation": {1: 0.99, 2: held or 0.98}, "test": {2: 1 - mu / 2}}
            pretend(config_of("iid", mu, seed), values, "diverged" if held is None else "done")
    code, out, err = cli(*PROX, "columns=iid", "seeds=2")
    assert (code, err) == (0, "")
    assert "diverged" in out
    assert chosen() == {"iid": 0.1}
    cell = written()["cells"]["prox"]["iid"]
    assert [point.get("validation") for point in cell["grid"]] == [0.5, None, pytest.approx(0.55), 0.55]
    assert [point["diverged"] for point in cell["grid"]] == [0, 1, 0, 0]
    assert (cell["seeds"], cell["commit"]) == (2, "0123456789ab, 0123456789ab with changes")


def test_each_cell_has_its_own_choice(cli: Any, searched: None) -> None:
    assert cli(*PROX).code == 0
    assert chosen() == {"iid": 0.01, "dir": 0.1}


def test_values_that_are_given_replace_those_of_the_file(cli: Any, searched: None) -> None:
    answer = cli(*PROX, "columns=iid", f"grid.{MU}=[0.1,1.0]")
    assert answer.code == 0, answer.err
    cell = written()["cells"]["prox"]["iid"]
    assert [point["values"][MU] for point in cell["grid"]] == [0.1, 1.0] and cell["chosen"] == {MU: 1.0}
    assert f"'grid.{MU}=[0.1, 1.0]'" in cell["command"]


@pytest.mark.parametrize("out", ["results/tuned", "committed"])
def test_cells_that_were_tuned_before_stay(cli: Any, searched: None, out: str) -> None:
    assert cli(*PROX, "columns=iid", f"out={out}").code == 0
    committed = Path("committed/quick/toy_table1.yaml")
    assert committed.exists() != FILE.exists()
    before = committed.read_bytes() if committed.exists() else b""
    assert cli(*PROX, "columns=dir").code == 0
    assert chosen() == {"iid": 0.01, "dir": 0.1}
    assert sorted(path.name for path in FILE.parent.iterdir()) == ["toy_table1.yaml"]
    assert not before or committed.read_bytes() == before


@pytest.mark.parametrize("code", [1, 130])
def test_nothing_is_chosen_from_half_a_grid(cli: Any, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("benchmark.commands.launching._carry_out", lambda *_: code)
    pretend_grid("dir", (0.3, 0.1, 0.8, 0.5), (1, 0, 0, 0))
    for mu in GRID[:3]:
        pretend(config_of("iid", mu), {"validation": {2: 0.5}})
    answer = cli(*PROX)
    assert answer.code == code
    if code == 130:
        assert not FILE.exists()
        return
    assert "nothing chosen for prox, iid: runs have not ended, or all have diverged" in answer.err
    assert chosen() == {"dir": 0.1}, "the cell whose grid is complete has its choice"


@pytest.mark.parametrize(
    ("values", "state", "code", "said"),
    [
        ({"validation": {1: 0.5}}, "diverged", 1, "nothing chosen for prox, iid"),
        ({"test": {2: 0.5}}, "done", 2, "accuracy on the validation split"),
    ],
)
def test_nothing_is_chosen_without_values(
    cli: Any, nothing_runs: None, values: Values, state: str, code: int, said: str
) -> None:
    for mu in GRID:
        pretend(config_of("iid", mu), values, state)
    answer = cli(*PROX, "columns=iid")
    assert (answer.code, FILE.exists()) == (code, False)
    assert said in answer.err
    assert answer.out.count("diverged") == (4 if state == "diverged" else 0)
    assert state == "diverged" or config_of("iid", 0.001).key in answer.err


def test_a_collapsed_run_is_never_chosen_and_an_edge_is_said(cli: Any, nothing_runs: None) -> None:
    """A recall of 1/2 over two classes is that of a constant prediction, here with 90 % of one class."""
    for mu, held, recall in zip(GRID, (0.9, 0.6, 0.7, 0.8), (0.5, 0.6, 0.7, 0.8), strict=True):
        values = [("all", "accuracy", held), ("all", "balanced_accuracy", recall)]
        values += [(f"class={c}", "accuracy", recall) for c in (0, 1)]
        records = [Record(2, "validation", group, metric, value) for group, metric, value in values]
        results = ResultsFolder(Path("results")).open()
        finish(results, config_of("iid", mu), records)
    answer, cell = cli(*PROX, "columns=iid"), written()["cells"]["prox"]["iid"]
    assert cell["chosen"] == {MU: 1.0} and cell["at_edge"] == [MU]
    points = [(point.get("validation"), point["diverged"]) for point in cell["grid"]]
    assert points == [(None, 1), (0.6, 0), (0.7, 0), (0.8, 0)]
    assert f"toy_table1, FedProx, iid: {MU}=1.0 is at an edge of its grid" in answer.err


def test_a_search_holds_data_out_and_is_not_repeated(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = cli(*TUNE, "columns=iid")
    assert code == 0, err
    assert "8 runs, 8 to do" in err + out and f"chosen values: {FILE}" in out
    folders = sorted(path.parent for path in Path("results/runs").glob("*/seed*/result.json"))
    assert {config_of("iid", mu).key for mu in GRID} <= {"/".join(path.parts[-2:]) for path in folders}
    # By hand from the records: 96 images in 4 clients of 24, of which int(2.4) = 2 are held out, 8 in all.
    config = yaml.safe_load((folders[0] / "config.yaml").read_text())
    assert config["evaluation"]["validation"] == 0.1
    records = [json.loads(line) for line in (folders[0] / "records.jsonl").read_text().splitlines()]
    wanted = {"split": "validation", "group": "all", "metric": "accuracy"}.items()
    held = [record["value"] for record in records if wanted <= record.items()]
    assert all((8 * value) % 1 == 0 for value in held) and len(held) == 3

    before = FILE.read_bytes()
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)
    assert cli(*TUNE, "columns=iid").code == 0
    assert FILE.read_bytes() == before


def test_a_table_takes_what_was_chosen_and_says_so(cli: Any, searched: None) -> None:
    assert cli(*PROX, "columns=iid").code == 0
    for mu, column in ((0.01, "iid"), (None, "dir")):
        pretend(config_of(column, mu, split=0.0), {"test": {2: 0.5}})
    table = ("table", "rows=prox", "seeds=1", "launcher=inline", "columns=iid,dir")
    # A value that differs from the method's own (0.01) shows whether the table takes it.
    content = written()
    content["cells"]["prox"]["iid"]["chosen"][MU] = 0.5
    FILE.write_text(yaml.safe_dump(content))
    config = config_of("iid", 0.5, split=0.0)
    assert config.method["client"]["fedprox"]["mu"] == 0.5
    for words, said in (
        ((), {"missing": 1}),
        (("tuned=results/tuned",), {"missing": 1}),
        (("tuned=off",), {"done": 1}),
    ):
        assert numbers(cli("status", *table[1:3], "columns=iid", *words).out) == said
    pretend(config, {"test": {2: 0.5}})
    code, _, err = cli(*table)
    assert code == 0, err
    csv, text = (
        Path(f"results/tables/quick/toy_table1_part.{suffix}").read_text() for suffix in ("csv", "md")
    )
    assert config.key in csv
    assert config_of("dir", None, split=0.0).key in csv, "a cell that was not tuned is as before"
    line = (
        "Chosen on a validation split of 10 % of every client's training data, 1 seed "
        "(tuned/quick/toy_table1.yaml): FedProx: mu 0.5 (IID)."
    )
    assert line in text and "- Not tuned: FedProx (Dirichlet)." in text and "Nothing was tuned" not in text
    assert cli(*table, "tuned=off", "out=plain").code == 0
    assert config_of("iid", None, split=0.0).key in Path("plain/toy_table1.csv").read_text()
    assert "**Hyper-parameters.** Nothing was tuned here." in Path("plain/toy_table1.md").read_text()


def test_a_figure_draws_the_tuned_runs_of_its_table(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = {
        "paper": "toy", "figure": 1, "title": "Toy", "kind": "curves", "table": "toy_table1", "rows": ["prox"],
        "columns": ["iid"], "presets": {"quick": {}},
    }  # fmt: skip
    Path("conf/figure/toy_figure1.yaml").write_text(yaml.safe_dump(node))
    pretend_grid("iid", (0.2, 0.3, 0.9, 0.4), (0, 0, 0, 0))
    assert cli(*PROX, "columns=iid").code == 0
    pretend(config_of("iid", 0.1, split=0.0), {"test": {1: 0.25, 2: 0.75}})
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)
    code, _, err = cli("figure", "name=toy_figure1", "seeds=1", "launcher=inline")
    assert code == 0, err
    assert "75.0" in Path("results/figures/quick/toy_figure1.csv").read_text()
    text = Path("results/figures/quick/toy_figure1.md").read_text()
    assert "Hyper-parameters. Chosen" in text and "FedProx: mu 0.1 (all columns)." in text
    assert "Line: mean over 1 seed; band:" in text


def test_a_split_that_holds_nothing_out_is_refused(cli: Any, table: Any) -> None:
    # 96 images in 96 clients: one each, and none of them can be held out.
    table(columns=[{"key": "single", "label": "Single", "partition": {"name": "iid", "clients": 96}}])
    code, out, _ = cli(*PROX)
    assert code == 1
    assert "evaluation.validation: got 0.1" in out and "largest client" in out
    assert not FILE.exists()


def test_for_a_trial_that_fails_with_more_seeds_comes_the_next_best(
    cli: Any, nothing_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 0 puts the four in their order. The first diverges in seed 2. The fourth needs no other run."""
    monkeypatch.setattr("benchmark.experiments.tuning.drawn_trials", lambda *_: [{MU: mu} for mu in GRID])
    held = ((0.9, 0.9, None, 0.9), (0.8, 0.4, 0.4, 0.4), (0.7, 0.5, 0.6, 0.6), (0.6,))
    for mu, values in zip(GRID, held, strict=True):
        for seed, value in enumerate(values):
            state = "diverged" if value is None else "done"
            pretend(config_of("iid", mu, seed), {"validation": {2: value or 0.0}}, state)
    code, out, err = cli(*PROX, "columns=iid", "trials=4")
    assert (code, err) == (0, "") and "4 seeds (the best trials) or 1" in out
    cell = written()["cells"]["prox"]["iid"]
    assert chosen() == {"iid": GRID[2]} and cell["seeds"] == 4
    assert [point.get("validation") for point in cell["grid"]] == [None, 0.5, pytest.approx(0.6), 0.6]
    assert [len(point["runs"]) for point in cell["grid"]] == [4, 4, 4, 1]


@pytest.mark.slow
def test_a_few_trials_of_all_methods(cli: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four trials with seed 0, and the best two again with seeds 1 to 3; the mean of all seeds chooses."""
    rows = [ROWS[0], {**ROWS[1], "train": {"lr": 0.7}}]  # of its own: trials are drawn around FedAvg's
    table(rows=rows, tuned_only=True, first_seed=4, metric="accuracy")
    words = ("name=toy_table1", "columns=iid", "launcher=inline")
    assert "not tuned" in cli("status", *words[:2]).out
    code, out, err = cli("tune", "trials=4", *words)
    assert code == 0, err
    assert "8 runs, 8 to do" in out + err and "16 runs, 4 done before, 12 to do" in out + err
    cells = {row: found["iid"] for row, found in written()["cells"].items()}
    rates = {}
    for row, cell in cells.items():
        points = [point["values"] for point in cell["grid"]]
        again = [point for point in cell["grid"] if len(point["runs"]) == 4]
        assert len(points) == 4 and len(again) == 2
        scores = [point.get("validation") or 0 for point in again]
        assert cell["chosen"] == again[scores.index(max(scores))]["values"]
        assert all(
            0 <= point["cpu_seconds"] < 300 for point in cell["grid"]
        )  # a trial may take less than 5 ms
        assert all((MU in point) == (row == "prox") for point in points)
        rates[row] = [(point["train.lr"], point["train.momentum"]) for point in points]
    assert rates["prox"] == rates["fedavg"] and len(set(rates["fedavg"])) == 4

    before = FILE.read_bytes()
    assert cli("table", *words, "seeds=1").code == 0
    csv = Path("results/tables/quick/toy_table1_part.csv").read_text()
    assert "4=" in csv, "the seeds of the search are not reported"
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)
    assert cli("tune", "trials=4", *words).code == 0
    assert FILE.read_bytes() == before, "nothing is run twice"
