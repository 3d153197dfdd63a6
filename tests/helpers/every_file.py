"""Every file of a group of the configuration, small enough to run in a second."""

from collections.abc import Mapping
from typing import Any

import pytest

from benchmark.config.compose import group_names, load_group


def as_reference(values: Any) -> Any:
    """The settings of a rule, with the reference in place of the paper wherever there is a choice."""
    if not isinstance(values, dict):
        return values
    return {key: "reference" if key == "variant" else as_reference(value) for key, value in values.items()}


def both_variants(group: str) -> pytest.MarkDecorator:
    """The files of a group: name and settings, once more (slow) as the reference where that is something else."""
    files = {name: load_group(group, name) for name in group_names(group) if name != "auto"}
    cases = [pytest.param(name, node, id=name) for name, node in files.items()]
    for name, node in files.items():
        if as_reference(node) != node:
            marks = pytest.mark.slow
            cases.append(pytest.param(name, as_reference(node), id=f"{name}-reference", marks=marks))
    return pytest.mark.parametrize(("name", "settings"), cases)


SMALLER: Mapping[str, dict[str, Any]] = {
    "small_cnn": {"hidden": 8},
    "resnet18_32": {"width_multiplier": 0.125},
    "resnet18_gn": {"width_multiplier": 0.125},
    "resnet50": {"width_multiplier": 0.125},
    "resnet50_gn": {"width_multiplier": 0.125},
    "mobilenetv2_gn": {"width_multiplier": 0.35},
    "wrn28_10": {"widening_factor": 1},
}


def images(size: int) -> dict[str, Any]:
    """Square images of ``size`` pixels, in place of 8."""
    return {"dataset": {"options": {"size": size}}}


RESNET = {"model": {"name": "resnet18_32", "width_multiplier": 0.125}}


def small_network(name: str) -> dict[str, Any]:
    """A narrow network of a kind, and images that are large enough for it."""
    pixels = 32 if name in ("resnet50", "resnet50_gn", "efficientnet_b0", "mobilenetv2_gn") else 8
    return images(pixels) | {"model": load_group("model", name) | SMALLER.get(name, {})}
