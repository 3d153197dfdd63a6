"""Mistakes in a method's file: each is one message that names it, and nobody else's runs fail."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import class_run, run, with_rules
from torch import nn

from methods.core.contexts import Loss
from methods.core.rules import ClientRule, MethodError, Selection, VariantRule

# Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bases", "name", "value", "suggested"),
    [
        ((ClientRule,), "losss", lambda self, ctx, batch: Loss(0.0), "loss"),
        ((ClientRule,), "proximall", property(lambda self: 1.0), "proximal"),
        ((VariantRule, Selection), "chose", classmethod(lambda cls: None), "choose"),
    ],
)
def test_a_public_name_that_is_no_hook(bases: tuple[type], name: str, value: Any, suggested: str) -> None:
    with pytest.raises(MethodError, match=rf"Mine\.{name}: .*underscore\. Did you mean '{suggested}'\?"):
        type("Mine", bases, {name: value})
    type("Mine", bases, {f"_{name}": value})


# What hooks return ------------------------------------------------------------------------------------------------

SAVED = "tensors, numbers"


@pytest.mark.parametrize(
    ("hook", "value", "got", "expected"),
    [
        ("loss", None, "None", "Loss"),
        ("correct", torch.ones(3), "Tensor", "None"),
        ("finish", ({}, {"sum": 1.0}), r"item 2: dict with \['sum'\]: float", r"dict\[str, Tensor\]"),
        ("finish", ({"net": nn.Linear(1, 1)}, {}), r"item 1: dict with \['net'\]: Linear", SAVED),
        ("finish", ({"a": [np.float64(1)]}, {}), r"dict with \['a'\]\[0\]: float64", SAVED),
        ("send", torch.ones(3), "Tensor", "dict"),
        ("sample_weights", torch.ones(3), "Tensor", r"ndarray \| None"),
        ("ascend", 0.5, "float", r"Tensor \| None"),
        ("loss", Loss(torch.ones(4)), r"extra: a tensor of shape \[4\] on cpu", r"shape \[\] on cpu"),
        ("loss", Loss(torch.ones((), device="meta")), "on meta", r"shape \[\] on cpu"),
        ("ascend", torch.ones(1), r"shape \[1\] on cpu", r"shape \[83\] on cpu"),
    ],
)
def test_a_wrong_return(hook: str, value: Any, got: str, expected: str) -> None:
    """One message in the first round, which names file, rule, hook, what it returned and what is expected."""
    rule = type("Mine", (ClientRule,), {hook: lambda self, *args: value})()
    where = rf"test_mistakes\.py: {hook} of rule 'Mine'"
    with pytest.raises(
        MethodError, match=rf"{where}: returned .*{got}; expected .*{expected}.*\. {hook}: \w"
    ):
        run(class_run(with_rules(rule), rounds=1))
