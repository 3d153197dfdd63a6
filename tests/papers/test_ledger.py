"""The ledger: every value of every switch can be built."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pytest

from benchmark.config.compose import compose, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.experiments.tables import spec_called
from benchmark.models.networks import Network
from benchmark.papers.ledger import Base, load
from benchmark.runs.build import build_method
from partitions.core.registry import make as make_partition

ENTRIES = {entry.id: entry for chapter in load() for entry in chapter.entries}


def settings_of(base: Base) -> dict[str, Any]:
    """The settings on top of the defaults that a switch acts on, in preset paper."""
    groups = base.model_dump(include={"method", "selection", "partition"}, exclude_none=True)
    named = {group: {"name": name} for group, name in groups.items()}
    if base.cell is None:
        return named
    found = spec_called(base.cell.table).cell_settings(base.cell.row, base.cell.column, "paper")
    assert found is not None
    return merge(found, named)


def at(node: Any, key: str) -> Any:
    """The setting of a dotted name; None if it is not there."""
    return reduce(
        lambda found, part: found.get(part) if isinstance(found, Mapping) else None, key.split("."), node
    )


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.switch])
def test_every_value_of_a_switch_can_be_built_and_the_first_is_the_default(name: str) -> None:
    entry = ENTRIES[name]
    base = settings_of(entry.base)
    default = compose("paper", base)
    for key, values in entry.switch.items():
        assert len(values) > 1
        runs = []
        for value in values:
            nested = reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value)
            runs.append(resolve(compose("paper", base, nested)))
            assert at(runs[-1].model_dump(), key) == value, key
            build_method(runs[-1])
            make_partition(runs[-1].partition.name, runs[-1].partition.parameters)
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
