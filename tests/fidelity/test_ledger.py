"""The ledger: every entry's switch exists, every effect can be measured, and the page says what the data say."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ledgers import ENTRY, write_ledger

from benchmark.config.compose import compose, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import check
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity import effects
from benchmark.fidelity.document import inconsistencies, render
from benchmark.fidelity.ledger import Base, load, table
from benchmark.models.networks import Network
from benchmark.runs.build import build_method
from partitions.core.registry import make as make_partition

ENTRIES = {entry.id: entry for chapter in load() for entry in chapter.entries}

EFFECT: dict[str, Any] = {
    "overrides": {"method.client.fedprox.prox_norm": "unsquared_per_tensor"},
    "cells": {"quick": {"table": "fedld_table1", "row": "fedprox", "column": "retina_split3"}},
}


def settings_of(base: Base) -> dict[str, Any]:
    """The settings on top of the defaults that a switch acts on, in preset paper."""
    groups = base.model_dump(include={"method", "selection", "partition"}, exclude_none=True)
    named = {group: {"name": name} for group, name in groups.items()}
    if base.cell is None:
        return named
    found = table(base.cell.table).cell_settings(base.cell.row, base.cell.column, "paper")
    assert found is not None
    return merge(found, named)


def at(node: Any, key: str) -> Any:
    """The setting of a dotted name; None if it is not there."""
    return reduce(
        lambda found, part: found.get(part) if isinstance(found, Mapping) else None, key.split("."), node
    )


def build(run: RunConfig) -> None:
    """Everything of a run that a switch may be in."""
    build_method(run)
    make_partition(run.partition.name, run.partition.parameters)


# The entries that come with the project ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.switch])
def test_every_value_of_a_switch_can_be_built_and_the_first_is_the_default(name: str) -> None:
    entry = ENTRIES[name]
    base = settings_of(entry.base)
    default = compose("paper", base)
    for key, values in entry.switch.items():
        runs = []
        for value in values:
            nested = reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value)
            runs.append(resolve(compose("paper", base, nested)))
            assert at(runs[-1].model_dump(), key) == value, key
            build(runs[-1])
        said = at(default, key)
        if said is not None or values[0] is None:
            assert said == values[0], key
        else:
            # Left to the variant, which must be the paper's, unless the rule's own default is what is said.
            variant = at(default, f"{key.rpartition('.')[0]}.variant")
            assert variant == "paper" or plain_default(key, runs[0]) == values[0], key


def plain_default(key: str, run: RunConfig) -> Any:
    """The default in the class of the rule that a setting of a method or a selection belongs to."""
    if key.startswith("model."):
        return Network.model_fields[key.removeprefix("model.")].default
    method, last = build_method(run), key.split(".")[-1]
    if key.startswith("selection."):
        return type(method.selection).model_fields[last].default
    rule = next(rule for rule in method.client if rule.key == key.split(".")[2])
    return type(rule).model_fields[last].default


def test_effects_are_of_the_entry_s_own_switch() -> None:
    measured = [entry for entry in ENTRIES.values() if entry.effect is not None]
    assert len(measured) >= 10
    for entry in measured:
        assert entry.effect is not None
        own = {key: value for key, value in entry.effect.overrides.items() if key in entry.switch}
        assert own, entry.id
        assert all(value in entry.switch[key][1:] for key, value in own.items()), entry.id


@pytest.mark.parametrize("preset", ["quick", "small"])
def test_every_effect_is_another_run_that_can_be_built(preset: str) -> None:
    planned = effects.pairs(load(), preset, [0], {}, TunedFolder(()))
    wanted = [entry for entry in ENTRIES.values() if effects.key_of(entry, preset)]
    assert [pair.entry.id for pair in planned] == [entry.id for entry in wanted]
    assert planned
    for pair in planned:
        (default,), (switched,) = ([cell.runs[0] for cell in cells.values()] for cells in pair[2:])
        assert default.hash != switched.hash, f"{pair.entry.id}: the switch changes nothing"
        for cells in (pair.default, pair.switched):
            check(pair.spec, cells)
        build(switched)


def test_entries_name_inconsistencies_that_exist() -> None:
    known = {name for section in inconsistencies() for name, _, _ in section.listed}
    named = set()
    for entry in ENTRIES.values():
        text = " ".join((entry.paper, entry.code, entry.text, entry.default, entry.no_switch))
        named |= set(re.findall(r"\b(?:LD|SDC|DIV|MR)-\d+\b", text))
    assert named <= known
    assert {"LD-1", "LD-6", "SDC-1", "DIV-8", "DIV-11", "MR-19"} <= named


def test_the_page_is_up_to_date(root: Path) -> None:
    page = (root / "docs" / "fidelity.md").read_text()
    assert page == render(load()), "write it with: python -m benchmark fidelity"
    # Every entry once, and links that lead somewhere.
    anchors = re.findall(r'<a id="([^"]+)"></a>', page)
    assert anchors == list(ENTRIES)
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) == set(anchors)
    for target in re.findall(r"\]\((\.\./[^)#]+)\)", page):
        assert (root / "docs" / target).exists(), target


# Mistakes in a ledger ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"switch": {}}, "needs a switch, or no_switch"),
        ({"base": {}}, "needs `base`"),
        ({"switch": {"train.lr": [0.1]}}, "two or more different values"),
        ({"switch": {"train.lr": [0.1, 0.1]}}, "two or more different values"),
        ({"id": "Toy Norm"}, "id"),
        ({"swich": {}}, "swich"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_ledger(tmp_path, ENTRY | change)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        load(tmp_path)
    assert "fedld.yaml" in str(caught.value)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    write_ledger(tmp_path, ENTRY, ENTRY | {"id": "fedmr-none"})
    with pytest.raises(ConfigError, match="fedmr-none comes twice"):
        load(tmp_path)
    (tmp_path / "fedmr.yaml").write_text((tmp_path / "fedsdc.yaml").read_text())
    with pytest.raises(ConfigError, match=r"fedmr\.yaml: paper: got 'fedsdc'"):
        load(tmp_path)
    (tmp_path / "fedmr.yaml").unlink()
    with pytest.raises(ConfigError, match=r"fedmr\.yaml"):
        load(tmp_path)


@pytest.mark.parametrize(("key", "name"), [("table", "fedld_tabel1"), ("row", "fedprocks")])
def test_tables_and_cells_that_do_not_exist_are_named(key: str, name: str, tmp_path: Path) -> None:
    effect = {**EFFECT, "cells": {"quick": EFFECT["cells"]["quick"] | {key: name}}}
    chapters = load(write_ledger(tmp_path, ENTRY | {"effect": effect}))
    with pytest.raises(ConfigError, match=name):
        effects.pairs(chapters, "quick", [0], {}, TunedFolder(()))


# The page ------------------------------------------------------------------------------------------------------


LINE = dict(
    zip(effects.KEY, ("toy-norm", *EFFECT["cells"]["quick"].values(), json.dumps(EFFECT["overrides"])), strict=True)
) | {
    "metric": "accuracy",
    "default_mean": "60.000000", "default_sd": "1.000000", "default_n": "3",
    "switched_mean": "62.125000", "switched_sd": "0.500000", "switched_n": "2",
    "difference": "2.125000", "differences": "+1.2500 +3.0000",
    "seeds": "0 2", "diverged": "switched 1 of 3", "commit": "123456789",
}  # fmt: skip


def page(folder: Path, *lines: Mapping[str, str], **changes: Any) -> str:
    pd.DataFrame(lines, columns=list(LINE)).to_csv(folder / "quick.csv", index=False)
    chapters = load(write_ledger(folder, ENTRY | {"effect": EFFECT} | changes))
    return render(chapters, folder)


def test_a_measured_effect_stands_in_the_list_and_at_its_entry(tmp_path: Path) -> None:
    text = page(tmp_path, LINE)
    assert (
        r"| [toy-norm](#toy-norm) | Norm of the toy \| term | "
        "`method.client.fedprox.prox_norm`: `squared`, `unsquared_per_tensor` | "
        "quick +2.12 points, diverged: switched 1 of 3 |"
    ) in text
    assert (
        "| quick | fedld_table1: FedProx, Retina Split-3 | 60.00 ± 1.00 (n=3) | 62.12 ± 0.50 (n=2) | "
        "+2.12 points, diverged: switched 1 of 3 (+1.25, +3.00) |"
    ) in text
    assert "`python -m benchmark fidelity effects ids=toy-norm preset=quick`" in text
    assert "| [fedmr-none](#fedmr-none) | Norm of the toy \\| term | none |  |" in text
    gone = {"switched_mean": "", "switched_sd": "", "switched_n": "0", "difference": "", "differences": ""}
    text = page(tmp_path, LINE | gone | {"diverged": "switched 3 of 3"})
    assert "| 60.00 ± 1.00 (n=3) | no number | diverged (switched 3 of 3) |" in text


@pytest.mark.parametrize(
    "effect",
    [
        EFFECT | {"overrides": {"method.client.fedprox.prox_norm": "squared"}},
        EFFECT | {"cells": {"quick": {"table": "fedld_table1", "row": "fedprox", "column": "covid_fl"}}},
        EFFECT | {"cells": {"small": {"table": "fedld_table1", "row": "fedprox", "column": "covid_fl"}}},
    ],
)
def test_an_effect_of_something_else_counts_as_not_measured(tmp_path: Path, effect: dict[str, Any]) -> None:
    text = page(tmp_path, LINE, effect=effect)
    assert "62.12" not in text
    assert text.count("not measured |") == 2


def test_another_preset_s_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "quick.csv").write_text("id,table\ntoy,fedld_table1\n")
    with pytest.raises(ConfigError, match=r"quick\.csv"):
        effects.read("quick", tmp_path)
    assert effects.read("small", tmp_path) == {}
