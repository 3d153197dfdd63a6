"""Table files: how they are read and merged, and that ours hold the papers' rows, columns and settings."""

import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from command_line import own_conf

from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import _with_rows, find_specs, load_spec
from benchmark.papers.registry import PAPER_TABLES, find
from benchmark.paths import CONF, PUBLISHED
from benchmark.reports.layout import as_table
from benchmark.reports.published import published_cells
from benchmark.reports.render import markdown
from benchmark.reports.results import Cell, build_results

NAMES = sorted(path.stem for path in (CONF / "table").glob("[!_]*.yaml"))


@cache
def spec_of(name: str) -> TableSpec:
    return load_spec(CONF / "table" / f"{name}.yaml")


def test_a_pattern_stands_for_the_tables_of_papers() -> None:
    def has_row(name: str, *tables: str) -> bool:
        return "mine" in [row.key for row in _with_rows(spec_of(name), {"mine": {"tables": [*tables]}}).rows]

    average = "feddiverse_table5_average"  # of our own: it has no number
    assert has_row("feddiverse_table5", "feddiverse_table5*") and not has_row(average, "feddiverse_table5*")
    assert has_row("fedmr_table1", "*") and not has_row("leaderboard", "*")
    assert has_row("leaderboard", "*_table1", "leaderboard") and has_row(average, average)
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: label: got 'FedProx'; expected a label that no other row"
    ):
        _with_rows(spec_of("fedmr_table1"), {"mine": {"tables": ["*"], "label": "FedProx"}})


def test_a_table_of_ones_own_needs_little(tmp_path: Path) -> None:
    node = {key: value for key, value in small().items() if key in ("title", "metric", "rows")}
    spec = load_spec(written(tmp_path, node | {"columns": [{"key": "a", "label": "A"}]}, "mine.yaml"))
    assert (spec.paper, spec.table, spec.presets) == ("mine", None, ("quick",))
    assert (spec.which_round, spec.seeds) == ({"quick": "last"}, {"quick": 3})
    assert spec.cell_settings("x", "a", "quick") == {"method": {"name": "fedavg"}}


def printed(spec: TableSpec) -> pd.DataFrame:
    read = partial(pd.read_csv, dtype=str, keep_default_na=False)
    frame = pd.concat([read(PUBLISHED / name) for name in spec.published])
    return frame[frame["metric"] == spec.published_metric]


@pytest.mark.parametrize("name", [name for name in NAMES if "_table" in name])
def test_every_printed_cell_is_there_once_and_no_other(name: str) -> None:
    """Tables 6 and 8 of FedMR print averages only: the columns behind them are the only ones with no printed number."""
    spec = spec_of(name)
    frame = printed(spec)
    settings = set(frame["setting"])
    columns = [column for column in spec.columns if column.key in settings]
    if spec.name in ("fedmr_table6", "fedmr_table8"):
        parts = {part for column in columns for part in column.average_of}
        assert {column.key for column in spec.columns if column not in columns} == parts
    else:
        assert len(columns) == len(spec.columns)
    ours = {
        (row.published_key["method"], row.published_key.get("selection", ""), column.key)
        for row in spec.rows
        for column in columns
    }
    selections = frame.get("selection", pd.Series("", frame.index))
    theirs = set(zip(frame["method"], selections, frame["setting"], strict=True))
    assert ours == theirs
    assert len(spec.rows) * len(columns) == len(frame)
    assert set(published_cells(spec)) == {(row.key, column.key) for row in spec.rows for column in columns}


def test_all_numeric_tables_of_the_papers_are_there() -> None:
    """FedLD 1-3, FedSDC 1-2, FedDiverse 1-8, FedMR 1-8: by a file of conf/table or by an analysis."""
    made = {(spec.paper, spec.table) for spec in find_specs() if spec.table}
    made |= {(table.paper, table.table) for table in PAPER_TABLES}
    last = {"fedld": 3, "fedsdc": 2, "feddiverse": 8, "fedmr": 8}
    assert made == {(paper, number) for paper, n in last.items() for number in range(1, n + 1)}
    for table in PAPER_TABLES:
        assert find(table.analysis).name == table.analysis
        if table.runs_of:
            assert spec_of(table.runs_of[0]).column(table.runs_of[1])


@pytest.mark.parametrize(
    ("name", "row", "column", "text"),
    [
        ("fedld_table1", "fedld", "covid_fl", "83.87"),
        ("fedsdc_table1", "fedsdc_plus", "niid1", "70.00 ± 1.12"),
        ("feddiverse_table1", "fedpns", "spawrious_gci100", "N/A"),
        ("feddiverse_table3", "fedavgm+fedprox/uniform", "cmnist_gsc", "92.42 ± 0.71"),
        ("feddiverse_table1", "uniform", "cmnist_gsc", "92.00 ± 1.61"),
        ("feddiverse_table1", "round_robin", "cmnist_gsc", "93.51 ± 0.49"),
        ("fedmr_table1", "fedmr", "fmnist/p5c2", "75.51"),
    ],
)
def test_known_cells_carry_the_printed_numbers(name: str, row: str, column: str, text: str) -> None:
    assert published_cells(spec_of(name))[row, column].text == text


def settings_of(name: str, row: str, column: str, preset: str = "paper") -> dict[str, Any]:
    settings = spec_of(name).cell_settings(row, column, preset)
    assert settings is not None
    return settings


def test_fedmr_partitions_are_what_their_names_say() -> None:
    spec = spec_of("fedmr_table1")
    for column in spec.run_columns:
        partition = settings_of(spec.name, "fedavg", column.key)["partition"]
        match = re.fullmatch(r"\w+/p(\d+)c(\d+)", column.key)
        if match:
            clients, classes = map(int, match.groups())
            assert partition == {"name": "pcdd", "clients": clients, "classes_per_client": classes}
        else:
            assert partition == {"name": "iid", "clients": 10}


def test_feddiverse_clients_and_weights() -> None:
    spec = spec_of("feddiverse_table1")
    for column in spec.columns:
        for row in spec.rows:
            settings = spec.cell_settings(row.key, column.key, "quick")
            assert settings is not None
            nova = row.key == "fednova"
            assert settings["partition"]["distribution"] == column.key
            expected = 12 if column.key == "spawrious_gci100" else 9
            assert settings["train"]["clients_per_round"] == (None if nova else expected)
            server = settings["method"]["server"]
            assert server["weights"] == {"name": "size" if nova else "uniform"}
            assert server["optimizer"] == {"name": "momentum", "beta": 0.95, "lr": 0.1}
            assert settings["selection"]["name"] == ("uniform" if nova else row.key)


@pytest.mark.parametrize(("name", "columns"), [("fedld_table1", 3), ("fedld_table2", 3), ("fedld_table3", 1)])
def test_fedld_paper_preset_has_the_authors_clients(name: str, columns: int) -> None:
    """Of Retina: the same for all seeds. The stand-ins of preset quick are cut anew for each seed."""
    retina = [column.key for column in spec_of(name).columns if column.key.startswith("retina")]
    assert len(retina) == columns
    for key in retina:
        paper, quick = (settings_of(name, "fedavg", key, preset) for preset in ("paper", "quick"))
        assert paper["partition"] == {**quick["partition"], "legacy_seed": 2022}
        assert paper["dataset"] == {"name": "retina"} and "legacy_seed" not in quick["partition"]
    if name == "fedld_table1":
        lambdas = {"retina_split1": 0.1, "retina_split2": 0.03, "retina_split3": 0.03, "covid_fl": 0.01}
        for key, lam in lambdas.items():
            assert settings_of(name, "fedld", key)["method"]["client"] == {"fedld_margin": {"lam": lam}}


RETINA = {"rounds": 200, "epochs": 1, "batch_size": 50, "lr": 0.01, "momentum": 0.5, "weight_decay": 0.0005}
BLOOD = {"rounds": 1500, "epochs": 5, "batch_size": 32, "lr": 1e-4, "momentum": 0.01, "weight_decay": 0.001}
GROUPS = {"rounds": 200, "epochs": 1, "batch_size": 28, "lr": 0.001, "momentum": 0.9, "weight_decay": 0.0}
DISJOINT = {"epochs": 10, "batch_size": 128, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}


@pytest.mark.parametrize(
    ("name", "row", "column", "train"),
    [
        ("fedld_table1", "fedavg", "retina_split1", RETINA),
        ("fedld_table1", "fedavg", "covid_fl", RETINA | {"lr": 0.005}),
        ("fedsdc_table1", "fedavgm", "iid", BLOOD),
        ("fedsdc_table1", "fedavgm", "niid2", BLOOD),
        ("fedsdc_table1", "fedavgm", "niid1", BLOOD | {"batch_size": 64, "lr": 0.001}),
        ("feddiverse_table1", "uniform", "cmnist_gsc", GROUPS),
        ("feddiverse_table3", "fedavg/uniform", "spawrious4", GROUPS),
        ("fedmr_table1", "fedavg", "svhn/iid", DISJOINT | {"rounds": 100}),
        ("fedmr_table1", "fedavg", "cifar100/iid", DISJOINT | {"rounds": 400}),
    ],
)
def test_budgets_of_the_papers(name: str, row: str, column: str, train: dict[str, Any]) -> None:
    assert settings_of(name, row, column)["train"].items() >= train.items()


def leaves(node: object, path: str = "") -> set[str]:
    if not isinstance(node, dict):
        return {path}
    return set().union(*(leaves(value, f"{path}.{key}".lstrip(".")) for key, value in node.items()), set())


@pytest.mark.parametrize("name", NAMES)
def test_presets_change_data_model_and_budget_only(name: str) -> None:
    """Quick has all columns, every column a source, and a table of a paper can be made at the paper's size."""
    spec = spec_of(name)
    wanted = {"quick", "paper"} & set(spec.presets)
    assert "quick" in wanted and (spec.table is None or "paper" in wanted)
    assert all(wanted <= set(column.presets or spec.presets) and column.source for column in spec.run_columns)
    if spec.table == 1:
        seeds = (len(spec.seed_range("quick")), len(spec.seed_range("paper")))
        assert seeds == (3, 5 if spec.paper == "fedsdc" else 3)
    # partition.legacy_seed: client lists that go with the data (Retina), by the same scheme.
    allowed = re.compile(
        r"dataset(\..+)?|model(\..+)?|partition\.(scale|legacy_seed)|train\.(rounds|epochs|steps|batch_size|lr|schedule\.name|clip|augment|buffers)|evaluation\.(every|validation)"
    )
    # Rows whose method is too slow for a laptop have a note that says what differs. A rate may go with the optimizer.
    entries = [entry for entry in spec.overrides if entry.preset != "*"]
    changed = set().union(*(leaves(entry.settings) for entry in entries if entry.row == "*"))
    assert not {leaf for leaf in changed if not allowed.fullmatch(leaf)}
    assert all(entry.note or leaves(entry.settings) == {"train.lr"} for entry in entries if entry.row != "*")


def small(**changes: object) -> dict[str, object]:
    return {
        "paper": "toy",
        "table": 1,
        "title": "Toy",
        "metric": "accuracy",
        "presets": ["quick", "paper"],
        "seeds": {"quick": 3, "paper": 5},
        "overrides": [
            {"preset": "quick", "train": {"rounds": 2}},
            {"preset": "paper", "dataset": {"name": "cifar10", "train_per_class": 5}},
            {"column": "a", "preset": "quick", "dataset": "digits", "note": "halved"},
        ],
        "rows": [{"key": "x", "label": "X", "method": "fedavg"}],
        "columns": [
            {"key": "a", "label": "A"},
            {"key": "b", "label": "B", "presets": ["paper"]},
            {"key": "m", "label": "Mean", "average_of": ["a", "b"]},
        ],
    } | changes


def written(tmp_path: Path, node: object, name: str = "toy_table1.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump(node))
    return path


def test_later_settings_win(tmp_path: Path) -> None:
    """Overrides in their order, whatever they match; then the column; then the row."""
    node = small(
        overrides=[
            {"train": {"lr": 1, "rounds": 1, "epochs": 1, "steps": 1, "clip": 1, "momentum": 1}},
            {"row": "x", "column": "a", "preset": "quick", "train": {"rounds": 2, "epochs": 2, "clip": 2}},
            {"preset": "q*,paper", "train": {"epochs": 3, "steps": 3}},
            {"column": "b", "train": {"lr": 0}},
            {"row": "x", "note": "lighter", "method": {"client": {}}},
            {"row": "x", "preset": "paper", "note": "heavier"},
        ],
        columns=[{"key": "a", "label": "A", "train": {"clip": 4, "momentum": 4}}, {"key": "b", "label": "B"}],
        rows=[
            {"key": "x", "label": "X", "method": "fedavg", "selection": "uniform", "train": {"momentum": 5}}
        ],
    )
    spec = load_spec(written(tmp_path, node))
    expected = {
        "train": {"lr": 1, "rounds": 2, "epochs": 3, "steps": 3, "clip": 4, "momentum": 5},
        "method": {"name": "fedavg", "client": {}},
        "selection": {"name": "uniform"},
    }
    assert [spec.cell_settings("x", "a", "quick") for _ in range(2)] == [expected] * 2
    assert (spec.row_note("x", "quick"), spec.row_note("x", "paper")) == ("lighter", "heavier")
    text = markdown.render(as_table(build_results(spec, "quick", {("x", "a"): Cell("ok")})))
    assert "X: lighter\n" in text


def test_names_mappings_seeds_and_notes(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small(which_round={"quick": "last", "paper": "mean_last_3"})))
    assert (spec.round("quick").rule, spec.round("paper")) == ("last", WhichRound("mean_last", 3))
    quick = {"train": {"rounds": 2}, "dataset": {"name": "digits"}, "method": {"name": "fedavg"}}
    assert spec.cell_settings("x", "a", "quick") == quick
    paper = spec.cell_settings("x", "b", "paper")
    assert paper == {"dataset": {"name": "cifar10", "train_per_class": 5}, "method": {"name": "fedavg"}}
    assert spec.cell_settings("x", "b", "quick") is None
    assert (len(spec.seed_range("quick")), len(spec.seed_range("paper"))) == (3, 5)
    assert (spec.column_note("a", "quick"), spec.column_note("a", "paper")) == ("halved", "")
    for cell, said in (
        (("x", "m", "quick"), "no runs of its own"),
        (("y", "a", "quick"), "row: got 'y'"),
        (("x", "a", "quik"), r"preset: got 'quik'.*Did you mean 'quick'"),
    ):
        with pytest.raises(ConfigError, match=said):
            spec.cell_settings(*cell)


def test_a_table_that_extends_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = own_conf(tmp_path, monkeypatch, "table") / "table"
    base = small(table=None, rows=[{"key": key, "label": key, "method": "fedavg"} for key in ("x", "y", "z")])
    base["overrides"] = [*base["overrides"], {"row": "y,z", "train": {"lr": 7}}]  # type: ignore[misc]
    written(folder, base, "_base.yaml")
    node = {
        "extends": "_base",
        "title": "Other",
        "rows": [
            "z",
            {"key": "x", "label": "New", "train": {"lr": 8}},
            {"key": "n", "label": "N", "method": "moon"},
        ],
        "columns": [{"key": "[ab]", "group": "G"}],
        "overrides": [{"row": "z", "train": {"lr": 9}}],
    }
    spec = load_spec(written(folder, node, "other.yaml"))
    assert [spec.name for spec in find_specs()] == ["other"]
    assert (spec.title, spec.paper, len(spec.seed_range("paper"))) == ("Other", "toy", 5)
    assert [(row.key, row.label) for row in spec.rows] == [("z", "z"), ("x", "New"), ("n", "N")]
    columns = [(column.key, column.label, column.group) for column in spec.columns]
    assert columns == [("a", "A", "G"), ("b", "B", "G")]
    settings = {row.key: spec.cell_settings(row.key, "a", "quick") or {} for row in spec.rows}
    assert {key: value["train"].get("lr") for key, value in settings.items()} == {"z": 9, "x": 8, "n": None}
    assert spec.column_note("a", "quick") == "halved"
    written(folder, {"extends": "other", "columns": ["b"], "presets": ["paper"], "seeds": 1}, "third.yaml")
    third = load_spec(folder / "third.yaml")
    assert len(third.overrides) == 3, "overrides that match nothing are not inherited"
    for wrong, said in (({"extends": "bas"}, "extends: got 'bas'"), ({"rows": ["q"]}, "rows: got 'q'")):
        with pytest.raises(ConfigError, match=f"other.yaml: {said}"):
            load_spec(written(folder, node | wrong, "other.yaml"))


def test_a_part_of_a_table() -> None:
    spec = spec_of("fedmr_table1")
    columns = [column.key for column in spec.columns if column.group == "FMNIST"]
    part = spec.cut(["fedprox", "fedavg"], columns)
    assert [row.key for row in part.rows] == ["fedavg", "fedprox"]
    assert [column.key for column in part.columns] == columns
    assert "2 of 8 rows and 6 of 24 columns" in part.caption
    cell = ("fedavg", "fmnist/iid", "quick")
    assert part.cell_settings(*cell) == spec.cell_settings(*cell)
    for rows, keys, said in (
        (["fedavg"], ["fmnist/p5c2", "fmnist/avg"], "choose fmnist/p10c2"),
        (["fedproxx"], ["fmnist/p5c2"], "Did you mean 'fedprox'"),
        ([], ["fmnist/p5c2"], "no row or no column"),
    ):
        with pytest.raises(ConfigError, match=said):
            spec.cut(rows, keys)


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"metrc": "loss"}, "metrc", "Did you mean 'metric'?"),
        ({"which_round": "best"}, "which_round", "'best'"),
        ({"which_round": "mean_last_0"}, "which_round", "mean_last_<n>"),
        ({"which_round": {"quick": "last"}}, "which_round", "paper"),
        ({"seeds": {"quick": 1}}, "seeds", "'paper'"),
        ({"seeds": {"quick": 1, "paper": 1, "quik": 1}}, "seeds", "Did you mean 'quick'?"),
        ({"overrides": [{"trian": {"rounds": 1}}]}, "overrides.0.trian", "Did you mean 'train'?"),
        ({"overrides": [{}, {"column": "m"}]}, "overrides.1.column", "'m'"),
        ({"rows": [{"key": "x", "label": "X", "method": "m"}] * 2}, "rows", "x"),
        ({"rows": [{"key": "x", "label": "X"}]}, "rows.0.method", "conf/method"),
        ({"columns": [{"key": "m", "label": "M", "average_of": ["q"]}]}, "columns.m.average_of", "'q'"),
        ({"columns": [{"key": "a", "label": "A", "presets": ["quik"]}]}, "columns.a.presets", "'quick'"),
        (
            {"columns": [{"key": "a", "label": "A", "metric": "loss"}]},
            "columns.a.metric",
            "direction of accuracy",
        ),
        ({"paper": "other"}, "", "other_table1.yaml"),
    ],
)
def test_mistakes_in_a_table_file(tmp_path: Path, changes: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_spec(written(tmp_path, small(**changes)))
    assert all(text in str(caught.value) for text in (key, said, "toy_table1.yaml"))


def test_published_numbers_that_cannot_be_found(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small(published="absent.csv")))
    with pytest.raises(ConfigError, match=r"absent\.csv cannot be read"):
        published_cells(spec, tmp_path)
    (tmp_path / "twice.csv").write_text(
        "method,setting,metric,mean,std,n_seeds,note\n" + "x,a,accuracy,1,,,\n" * 2
    )
    twice = load_spec(written(tmp_path, small(published="twice.csv")))
    with pytest.raises(ConfigError, match="fits 2 lines"):
        published_cells(twice, tmp_path)
