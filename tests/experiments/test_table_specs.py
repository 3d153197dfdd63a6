"""Table files: how they are read and merged, and that ours hold the papers' rows, columns and settings."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from benchmark.analyses.registry import PAPER_TABLES, find
from benchmark.errors import ConfigError
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TABLE_FOLDER, TableSpec, find_specs, load_spec, merge
from benchmark.reports.layout import as_table
from benchmark.reports.published import PUBLISHED_FOLDER, PublishedTable
from benchmark.reports.render import markdown
from benchmark.reports.results import Cell, build_results

FILES = sorted(TABLE_FOLDER.glob("*.yaml"))
PAPERS = [path for path in FILES if "_table" in path.stem]


def spec_of(name: str) -> TableSpec:
    return load_spec(TABLE_FOLDER / f"{name}.yaml")


def printed(spec: TableSpec) -> pd.DataFrame:
    frames = [
        pd.read_csv(PUBLISHED_FOLDER / name, dtype=str, keep_default_na=False) for name in spec.published
    ]
    frame = pd.concat(frames)
    return frame[frame["metric"] == spec.published_metric]


# The papers' tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_every_printed_cell_is_there_once_and_no_other(path: Path) -> None:
    """Tables 6 and 8 of FedMR print averages only: the columns behind them are the only ones with no printed number."""
    spec = load_spec(path)
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
    theirs = set(
        zip(
            frame["method"], frame.get("selection", pd.Series("", frame.index)), frame["setting"], strict=True
        )
    )
    assert ours == theirs
    assert len(spec.rows) * len(columns) == len(frame)
    table = PublishedTable(spec)
    assert all(table.find(row, column) is not None for row in spec.rows for column in columns)


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


def test_no_table_has_a_method_that_is_missing() -> None:
    """Every row and column composes in preset quick."""
    for spec in find_specs():
        states = {cell.state for cell in plan(spec, "quick").values()} if "quick" in spec.presets else set()
        assert states <= {"ok", "average"}, spec.name


def test_shapes_of_the_four_main_tables() -> None:
    shapes = {spec.name: (len(spec.rows), len(spec.columns)) for spec in find_specs(table=1)}
    assert shapes == {
        "fedld_table1": (6, 4),
        "fedsdc_table1": (9, 3),
        "feddiverse_table1": (7, 7),
        "fedmr_table1": (8, 24),
    }


def test_known_cells_carry_the_printed_numbers() -> None:
    def find(name: str, row: str, column: str) -> str:
        spec = spec_of(name)
        cell = PublishedTable(spec).find(spec.row(row), spec.column(column))
        assert cell is not None
        return cell.text

    assert find("fedld_table1", "fedld", "covid_fl") == "83.87"
    assert find("fedsdc_table1", "fedsdc_plus", "niid1") == "70.00 ± 1.12"
    assert find("feddiverse_table1", "fedpns", "spawrious_gci100") == "N/A"
    assert find("feddiverse_table3", "fedavgm+fedprox/uniform", "cmnist_gsc") == "92.42 ± 0.71"
    assert find("feddiverse_cmnist_gsc", "fedavgm/uniform", "cmnist_gsc") == "92.00 ± 1.61"
    assert find("feddiverse_cmnist_gsc", "fedavgm/round_robin", "cmnist_gsc") == "93.51 ± 0.49"
    assert find("fedmr_table1", "fedmr", "fmnist/p5c2") == "75.51"


def test_averages_are_over_the_five_partitions_of_the_paper() -> None:
    spec = spec_of("fedmr_table1")
    frame = printed(spec).set_index(["method", "setting"])["mean"].astype(float)
    wrong = {}
    for column in spec.columns:
        if not column.average_of:
            continue
        dataset = column.key.split("/")[0]
        settings = {setting for _, setting in frame.index if setting.startswith(f"{dataset}/")}
        assert set(column.average_of) == settings - {column.key}
        for row in spec.rows:
            mean = sum(frame[row.key, part] for part in column.average_of) / 5
            if abs(mean - frame[row.key, column.key]) > 0.0051:
                wrong[row.key, column.key] = round(mean, 3)
    # results/published/README.md, MR-1 to MR-5: all other printed averages agree with their parts.
    assert wrong == {
        ("fedmr", "fmnist/avg"): 83.252,
        ("moon", "fmnist/avg"): 79.854,
        ("fednova", "svhn/avg"): 84.036,
        ("fedavg", "cifar10/avg"): 78.574,
        ("feddyn", "cifar100/avg"): 67.018,
    }


def test_fedmr_partitions_are_what_their_names_say() -> None:
    spec = spec_of("fedmr_table1")
    for column in spec.run_columns:
        partition = column.overrides["partition"]
        match = re.fullmatch(r"\w+/p(\d+)c(\d+)", column.key)
        if match:
            clients, classes = map(int, match.groups())
            assert partition == {"name": "pcdd", "clients": clients, "classes_per_client": classes}
        else:
            assert partition == {"name": "iid", "clients": 10}


def test_feddiverse_clients_and_weights() -> None:
    spec = spec_of("feddiverse_table1")
    distributions = [column.overrides["partition"]["distribution"] for column in spec.columns]
    assert distributions == [column.key for column in spec.columns]
    for column in spec.columns:
        for row in spec.rows:
            settings = spec.cell_overrides(row.key, column.key, "quick")
            assert settings is not None
            expected = 12 if column.key == "spawrious_gci100" else 9
            assert settings["train"]["clients_per_round"] == (None if row.key == "fednova" else expected)
            server = settings["method"]["server"]
            assert server["weights"] == {"name": "size" if row.key == "fednova" else "uniform"}
            assert server["optimizer"] == {"name": "momentum", "beta": 0.95, "lr": 0.1}
            assert settings["selection"]["name"] == ("uniform" if row.key == "fednova" else row.key)


def test_fedld_lambda_per_cell() -> None:
    spec = spec_of("fedld_table1")
    found = {}
    for column in spec.columns:
        settings = spec.cell_overrides("fedld", column.key, "paper")
        assert settings is not None
        (rule,) = settings["method"]["client"].values()
        found[column.key] = tuple(rule.values())
    assert found == {
        "retina_split1": (0.1,),
        "retina_split2": (0.03,),
        "retina_split3": (0.03,),
        "covid_fl": (0.01,),
    }


@pytest.mark.parametrize(("name", "columns"), [("fedld_table1", 3), ("fedld_table2", 3), ("fedld_table3", 1)])
def test_fedld_paper_preset_has_the_authors_clients(name: str, columns: int) -> None:
    """Of Retina: the same for all seeds. The stand-ins of preset quick are cut anew for each seed."""
    spec = spec_of(name)
    retina = [column.key for column in spec.columns if column.key.startswith("retina")]
    assert len(retina) == columns
    for key in retina:
        paper, quick = (spec.cell_overrides("fedavg", key, preset) for preset in ("paper", "quick"))
        assert paper is not None and quick is not None
        assert paper["partition"] == {**quick["partition"], "legacy_seed": 2022}
        assert paper["dataset"] in ("retina", {"name": "retina"}) and "legacy_seed" not in quick["partition"]


def test_budgets_of_the_papers() -> None:
    def train(name: str, row: str, column: str) -> dict[str, object]:
        settings = spec_of(name).cell_overrides(row, column, "paper")
        assert settings is not None
        return settings["train"]

    retina = {
        "rounds": 200,
        "epochs": 1,
        "batch_size": 50,
        "lr": 0.01,
        "momentum": 0.5,
        "weight_decay": 0.0005,
    }
    assert train("fedld_table1", "fedavg", "retina_split1").items() >= retina.items()
    assert train("fedld_table1", "fedavg", "covid_fl").items() >= (retina | {"lr": 0.005}).items()
    cells = {
        "rounds": 1500,
        "epochs": 5,
        "batch_size": 32,
        "lr": 0.0001,
        "momentum": 0.01,
        "weight_decay": 0.001,
    }
    assert train("fedsdc_table1", "fedavgm", "iid").items() >= cells.items()
    assert train("fedsdc_table1", "fedavgm", "niid2").items() >= cells.items()
    assert (
        train("fedsdc_table1", "fedavgm", "niid1").items()
        >= (cells | {"batch_size": 64, "lr": 0.001}).items()
    )
    groups = {"rounds": 200, "epochs": 1, "batch_size": 28, "lr": 0.001, "momentum": 0.9, "weight_decay": 0.0}
    assert train("feddiverse_table1", "uniform", "cmnist_gsc").items() >= groups.items()
    assert train("feddiverse_table3", "fedavg/uniform", "spawrious4").items() >= groups.items()
    disjoint = {"epochs": 10, "batch_size": 128, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}
    assert train("fedmr_table1", "fedavg", "svhn/iid").items() >= (disjoint | {"rounds": 100}).items()
    assert train("fedmr_table1", "fedavg", "cifar100/iid").items() >= (disjoint | {"rounds": 400}).items()


def test_number_of_seeds() -> None:
    assert {spec.name: spec.num_seeds("quick") for spec in find_specs()} == dict.fromkeys(
        [p.stem for p in FILES], 3
    )
    assert {spec.name: spec.num_seeds("paper") for spec in find_specs(table=1)} == {
        "fedld_table1": 3,
        "fedsdc_table1": 5,
        "feddiverse_table1": 3,
        "fedmr_table1": 3,
    }


def leaves(node: object, path: str = "") -> set[str]:
    if not isinstance(node, dict):
        return {path}
    return set().union(*(leaves(value, f"{path}.{key}".lstrip(".")) for key, value in node.items()), set())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_presets_change_data_model_and_budget_only(path: Path) -> None:
    # partition.legacy_seed: client lists that go with the data (Retina), by the same scheme.
    allowed = re.compile(
        r"dataset(\..+)?|model(\..+)?|partition\.(scale|legacy_seed)|train\.(rounds|epochs|steps|batch_size|lr|clip|augment|buffers)"
    )
    spec = load_spec(path)
    nodes = [preset.overrides for preset in spec.presets.values()]
    nodes += [preset.overrides for column in spec.columns for preset in column.presets.values()]
    changed = set().union(*(leaves(node) for node in nodes))
    assert not {leaf for leaf in changed if not allowed.fullmatch(leaf)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_quick_has_all_columns_and_every_column_a_source(path: Path) -> None:
    spec = load_spec(path)
    wanted = {"quick", "paper"} & set(spec.presets)
    assert "quick" in wanted
    assert spec.table is None or "paper" in wanted  # a table of the paper can be made at the paper's size
    assert all(wanted <= set(column.presets) and column.source for column in spec.run_columns)


# Reading and merging --------------------------------------------------------------------------------------------


def small(**changes: object) -> dict[str, object]:
    return {
        "paper": "toy",
        "table": 1,
        "title": "Toy",
        "metric": "accuracy",
        "presets": {"quick": {"train": {"rounds": 2}}, "paper": {"seeds": 5}},
        "rows": [{"key": "x", "label": "X", "method": "fedavg"}],
        "columns": [
            {"key": "a", "label": "A", "presets": {"quick": {"dataset": "digits", "note": "halved"}}},
            {
                "key": "b",
                "label": "B",
                "presets": {"paper": {"dataset": {"name": "cifar10", "train_per_class": 5}}},
            },
            {"key": "m", "label": "Mean", "average_of": ["a", "b"]},
        ],
    } | changes


def written(tmp_path: Path, node: object, name: str = "toy_table1.yaml") -> Path:
    path = tmp_path / name
    path.write_text(node if isinstance(node, str) else yaml.safe_dump(node))
    return path


def test_layers_in_their_order(tmp_path: Path) -> None:
    layer = {"train": {"lr": 1, "rounds": 1, "epochs": 1, "steps": 1, "clip": 1, "momentum": 1}}
    node = small(
        overrides=layer,
        presets={"quick": {"train": {"rounds": 2, "epochs": 2, "steps": 2, "clip": 2, "momentum": 2}}},
        columns=[
            {
                "key": "a",
                "label": "A",
                "overrides": {"train": {"epochs": 3, "steps": 3, "clip": 3, "momentum": 3}},
                "presets": {"quick": {"train": {"steps": 4, "clip": 4, "momentum": 4}}},
            }
        ],
        rows=[
            {
                "key": "x",
                "label": "X",
                "method": "fedavg",
                "selection": "uniform",
                "overrides": {"train": {"clip": 5, "momentum": 5, "drop_last": 5}, "method": {"client": {}}},
                "presets": {"quick": {"note": "lighter", "train": {"momentum": 5.5, "drop_last": 5.5}}},
            }
        ],
        cells=[{"row": "x", "column": "a", "overrides": {"train": {"momentum": 6}}}],
    )
    spec = load_spec(written(tmp_path, node))
    expected = {
        "train": {"lr": 1, "rounds": 2, "epochs": 3, "steps": 4, "clip": 5, "drop_last": 5.5, "momentum": 6},
        "method": {"name": "fedavg", "client": {}},
        "selection": {"name": "uniform"},
    }
    assert spec.cell_overrides("x", "a", "quick") == expected
    assert spec.cell_overrides("x", "a", "quick") == expected  # nothing was changed by asking
    text = markdown.render(as_table(build_results(spec, "quick", {("x", "a"): Cell("ok")})))
    assert "- X: lighter\n" in text


def test_names_mappings_seeds_and_notes(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small()))
    assert spec.cell_overrides("x", "a", "quick") == {
        "train": {"rounds": 2},
        "dataset": {"name": "digits"},
        "method": {"name": "fedavg"},
    }
    paper = spec.cell_overrides("x", "b", "paper")
    assert paper == {"dataset": {"name": "cifar10", "train_per_class": 5}, "method": {"name": "fedavg"}}
    assert spec.cell_overrides("x", "b", "quick") is None
    assert (spec.num_seeds("quick"), spec.num_seeds("paper")) == (3, 5)
    assert spec.column("a").presets["quick"].note == "halved"
    with pytest.raises(ConfigError, match="no runs of its own"):
        spec.cell_overrides("x", "m", "quick")


def test_another_name_replaces_the_parameters_of_the_old_one() -> None:
    base = {
        "optimizer": {"name": "momentum", "beta": 0.9},
        "weights": {"name": "size"},
        "client": {"fedprox": {"mu": 1}},
    }
    over = {
        "optimizer": {"name": "adam", "lr": 0.1},
        "weights": {"name": "size", "x": 1},
        "client": {"moon": {}},
    }
    assert merge(base, over) == {
        "optimizer": {"name": "adam", "lr": 0.1},
        "weights": {"name": "size", "x": 1},
        "client": {"fedprox": {"mu": 1}, "moon": {}},
    }
    assert base["optimizer"] == {"name": "momentum", "beta": 0.9}
    assert merge({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_a_part_of_a_table(tmp_path: Path) -> None:
    spec = spec_of("fedmr_table1")
    part = spec.cut(
        ["fedprox", "fedavg"], [column.key for column in spec.columns if column.group == "FMNIST"]
    )
    assert [row.key for row in part.rows] == ["fedavg", "fedprox"]
    assert [column.key for column in part.columns][::5] == ["fmnist/p5c2", "fmnist/avg"]
    assert "2 of 8 rows and 6 of 24 columns" in part.caption
    assert part.cell_overrides("fedavg", "fmnist/iid", "quick") == spec.cell_overrides(
        "fedavg", "fmnist/iid", "quick"
    )
    with pytest.raises(ConfigError, match="choose fmnist/p10c2"):
        spec.cut(["fedavg"], ["fmnist/p5c2", "fmnist/avg"])
    with pytest.raises(ConfigError, match="Did you mean 'fedprox'"):
        spec.cut(["fedproxx"], ["fmnist/p5c2"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrc": "loss"}, "metrc: came 'loss'; unknown key. Did you mean 'metric'?"),
        ({"metric": "acuracy"}, "unknown metric 'acuracy'. Did you mean 'accuracy'?"),
        ({"which_round": "best"}, "which_round: came 'best'; allowed: last"),
        ({"seeds": 0}, "seeds: came 0; Input should be greater than 0"),
        ({"presets": {"quick": {"trian": {"rounds": 1}}}}, "unknown setting 'trian'. Did you mean 'train'?"),
        ({"overrides": {"seed": 1}}, "unknown setting 'seed'"),
        ({"overrides": {"train": 5}}, "train: came 5; expected a mapping"),
        (
            {"presets": {"quick": {}, "paper": {"seeds": 0}}},
            "presets.paper.seeds: came 0; Input should be greater than 0",
        ),
        ({"rows": []}, "rows: "),
        ({"rows": [{"key": "x", "label": "X", "method": "m"}] * 2}, "rows: x comes twice"),
        ({"columns": [{"key": "m", "label": "M", "average_of": ["q"]}]}, "average_of: unknown 'q'"),
        (
            {"columns": [{"key": "a", "label": "A", "presets": {"quik": {}}}]},
            "unknown 'quik'. Did you mean 'quick'?",
        ),
        ({"cells": [{"row": "x", "column": "z"}]}, "cells.column: unknown 'z'"),
        ({"paper": "other"}, "must be called other_table1.yaml"),
    ],
)
def test_mistakes_in_a_table_file(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_spec(written(tmp_path, small(**changes)))
    assert message in str(caught.value)
    assert "toy_table1.yaml" in str(caught.value)


def test_files_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_spec(tmp_path / "absent_table1.yaml")
    with pytest.raises(ConfigError, match="no valid YAML"):
        load_spec(written(tmp_path, "a: [1"))
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_spec(written(tmp_path, "- 1"))


def test_unknown_rows_presets_and_papers(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small()))
    with pytest.raises(ConfigError, match="no row is called 'y'"):
        spec.cell_overrides("y", "a", "quick")
    with pytest.raises(ConfigError, match=r"no preset is called 'quik'\. Did you mean 'quick'"):
        spec.cell_overrides("x", "a", "quik")
    with pytest.raises(ConfigError, match="Did you mean 'fedmr'"):
        find_specs("fedmrr")
    with pytest.raises(ConfigError, match=r"There is: .*fedmr_table1, fedmr_table2"):
        find_specs("fedmr", 9)


def test_published_numbers_that_cannot_be_found(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small(published="absent.csv")))
    with pytest.raises(ConfigError, match=r"absent\.csv cannot be read"):
        PublishedTable(spec, tmp_path)
    (tmp_path / "twice.csv").write_text(
        "method,setting,metric,mean,std,n_seeds,note\n" + "x,a,accuracy,1,,,\n" * 2
    )
    twice = load_spec(written(tmp_path, small(published="twice.csv")))
    with pytest.raises(ConfigError, match="fits 2 lines"):
        PublishedTable(twice, tmp_path).find(twice.row("x"), twice.column("a"))
