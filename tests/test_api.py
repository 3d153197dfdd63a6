"""benchmark.api: what the commands do, from Python."""

import inspect
from pathlib import Path

import pandas as pd
import pytest

from benchmark import api
from benchmark.commands.figures import FigureOptions
from benchmark.commands.planning import PlanOptions
from benchmark.commands.report import ReportOptions
from benchmark.commands.tables import TableOptions
from benchmark.commands.tuning import TuneOptions
from benchmark.errors import ConfigError
from benchmark.experiments.selection import ShowOptions, TableQuery
from benchmark.runs.status import RunResult, RunState

TINY = {"partition": "iid", "train": {"rounds": 2, "epochs": 1}, "evaluation": {"every": 1}}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_and_what_it_recorded() -> None:
    run = api.run(**TINY, **{"train.lr": 0.2})
    assert run.state == "done" and run.config.train.lr == 0.2
    assert run.folder == Path("results/runs") / run.key and run.folder.is_dir()
    records = run.records()
    assert list(records) == ["round", "split", "group", "metric", "value"]
    last = records.query("round == 2 and split == 'test' and group == 'all' and metric == 'accuracy'")
    assert last["value"].item() == run.final["test"]["accuracy"]


def test_a_sweep_has_a_row_for_each_run_and_the_settings_that_differ() -> None:
    runs = api.sweep(method=["fedavg", "fedprox"], seed=range(2), launcher="inline", **TINY)
    frame = runs.frame()
    assert len(runs) == len(frame) == 4
    assert list(frame["method"]) == ["fedavg", "fedavg", "fedprox", "fedprox"]
    assert list(frame["seed"]) == [0, 1, 0, 1] and set(frame["state"]) == {"done"}
    assert list(frame["folder"]) == [str(run.folder) for run in runs]
    assert list(frame["test.accuracy"]) == [run.final["test"]["accuracy"] for run in runs]
    assert "train.lr" not in frame, "all runs have the same"
    (folder,) = Path("results/sweeps").iterdir()
    assert list(pd.read_csv(folder / f"{folder.name}.csv")["row"]) == ["method=fedavg", "method=fedprox"], (
        "as of the command"
    )
    found = api.runs(method="fedp*", seed=1)
    assert [run.key for run in found] == [runs[3].key]
    assert [run.key for run in api.runs(method=["fedavg", "moon"], train={"rounds": 2})] == [
        run.key for run in runs[:2]
    ]


def test_a_table() -> None:
    table = api.table(
        "fedmr_table1", rows="fedavg,fedprox", columns="fmnist/p5c2,fmnist/iid", seeds=1, launcher="inline"
    )
    frame = table.frame()
    assert list(frame) == ["row", "column", "mean", "std", "n", "published", "state"]
    assert set(frame["n"]) == {1} and set(frame["state"]) == {"ok"}
    printed = pd.read_csv("results/tables/quick/fedmr_table1_part.csv")
    assert list(frame["mean"].round(6)) == list(printed["mean"])
    assert list(frame["published"]) == list(printed["published_mean"])
    wide = table.wide()
    for (row, column), of_cell in frame.groupby(["row", "column"]):
        assert wide.loc[row, column] == of_cell["mean"].item()
    assert list(table.wide(labels=True).index) == ["FedAvg", "FedProx"]
    names = ["base", "difference", "difference_low", "difference_high", "difference_n"]
    words = {"seeds": 1, "launcher": "inline", "show": "difference"}
    found = api.table(
        "fedmr_table1", rows="fedavg,fedprox", columns="fmnist/p5c2,fmnist/iid", **words
    ).frame()
    assert list(found) == [*frame, *names]
    (first, second) = found[found["column"] == "fmnist/iid"].to_dict("records")
    assert pd.isna(first["difference"]) and second["base"] == "fedavg" and second["difference_n"] == 1
    assert second["difference"] == pytest.approx(second["mean"] - first["mean"], abs=1e-5)


def test_a_table_with_another_value_in_one_row_and_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    """The runs are those of the changed values, the other rows are as they were, and the whole table is left alone."""
    words = {"seeds": 1, "launcher": "inline", "columns": "fmnist/p5c2,fmnist/iid"}
    mu, lr = "fedprox.method.client.fedprox.mu", "fmnist/p5c2.train.lr"
    (table,) = api.table(
        "fedmr_table1",
        rows="fedavg,fedprox,local",
        row_settings={mu: 3.0},
        column_settings={lr: 0.015},
        **words,
    )
    runs = {run.key: run.config for run in api.runs()}
    for (row, column), cell in table.results.cells.items():
        config = runs[str(cell.runs[0].run).removeprefix("runs/")]
        assert (config.train.lr == 0.015) == (column == "fmnist/p5c2")
        if row == "fedprox":
            assert config.method["client"]["fedprox"]["mu"] == 3.0
        printed = row == "fedavg" and column == "fmnist/iid"
        assert (cell.published is not None) == printed, (
            "neither for changed cells nor for a row that is added"
        )
    assert list(table.wide(labels=True).index) == ["FedAvg", "FedProx (mu=3.0)", "Local"]
    assert any("(lr=0.015)" in label for label in table.wide(labels=True).columns)
    assert [path.stem for path in Path("results/tables/quick").glob("*.csv")] == ["fedmr_table1_part"]
    capsys.readouterr()
    assert api.status(table=1, rows="fedavg,fedprox").tables.keys() == {"fedld_table1", "fedmr_table1"}
    (line,) = capsys.readouterr().err.splitlines()
    assert "feddiverse_table1 has no row 'fedavg'" in line and "fedsdc_table1 has no row 'fedavg'" in line


def test_mistakes_are_the_errors_of_the_commands() -> None:
    for call, said in (
        (lambda: api.run(method="fedprx"), "method: got 'fedprx'.*Did you mean 'fedprox'"),
        (lambda: api.run(train={"lrr": 1}), r"train\.lrr: unknown key"),
        (lambda: api.run(seed=[0, 1]), "seed: "),
        (lambda: api.sweep(launcher="locl"), "launcher: got 'locl'"),
        (lambda: api.table("fedmr_table9"), "name: got 'fedmr_table9'"),
        (lambda: api.run(method={"client": {"fedprox": {"nu": 1}}}), "method.client"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()
    assert not Path("results").exists(), "nothing was begun"
    api.run(**TINY)
    with pytest.raises(ConfigError, match=r"unknown key 'metod'.*Did you mean 'method'"):
        api.runs(metod="fedavg")


def test_a_run_that_fails_raises_with_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.fedprox import FedProx

    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(FedProx, "loss", broken)
    with pytest.raises(
        api.RunFailed, match=r"(?s)on purpose.*The end of results/runs/.*log\.txt.*Traceback.*broken"
    ):
        api.run(method="fedprox", **TINY)


def test_a_call_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.api.run_here", lambda *_: RunResult(RunState.MISSING))
    monkeypatch.setattr("benchmark.api.make_tables", lambda _: (130, []))
    for call in (lambda: api.run(**TINY), lambda: api.table("fedmr_table1")):
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_table_that_an_analysis_makes() -> None:
    """The values of FedMR's Table 3 by number and by name."""
    (table,) = api.table(paper="fedmr", table=3)
    assert table.name == "fedmr_table3" and "11.182" in table.frame().to_csv()
    (again,) = api.table("communication")
    assert again.frame().equals(table.frame())
    with pytest.raises(ConfigError, match="has no cells"):
        table.wide()


def test_every_option_of_a_command_is_a_parameter() -> None:
    """With the same default, so that help, command line and Python say the same."""
    for function, kind in (
        (api.table, TableOptions), (api.figure, FigureOptions), (api.tune, TuneOptions), (api.report, ReportOptions),
        (api.plan, PlanOptions), (api.status, TableQuery), (api.show, ShowOptions),
    ):  # fmt: skip
        parameters = inspect.signature(function).parameters
        options = {name: field for name, field in kind.model_fields.items() if not field.exclude}
        assert parameters.keys() == options.keys(), function.__name__
        for name, field in options.items():
            default = parameters[name].default
            assert default in (None, inspect.Parameter.empty) or str(default) == str(field.default), name
