"""Mistakes in a method's file: each is one message that names it, and nobody else's runs fail."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import class_run, run, with_rules
from torch import nn

from methods.core.contexts import Head, Loss, Phase
from methods.core.method import NEUTRAL
from methods.core.rules import SLOTS, ClientRule, MethodError, Selection, VariantRule, register, registered

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


@pytest.mark.filterwarnings("ignore:Field name:UserWarning")
@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("proximal", {"proximal": lambda self: 1.0}, "a value or a property"),
        ("loss", {"loss": property(lambda self: 1.0)}, "a function"),
        ("loss", {"loss": 1.0, "__annotations__": {"loss": float}}, "a function"),
    ],
)
def test_a_value_for_a_function_and_the_other_way_round(name: str, body: dict[str, Any], said: str) -> None:
    with pytest.raises(MethodError, match=rf"Mine\.{name}: got .*; expected {said}\."):
        type("Mine", (ClientRule,), body)


def test_every_hook_may_be_overridden() -> None:
    for base in SLOTS.values():
        hooks = {name: value for name, value in vars(base).items() if name[0] != "_" and callable(value)}
        mine = type("Mine", (base,), hooks)
        assert hooks.keys() <= vars(mine).keys()


@pytest.mark.parametrize(
    ("slot", "said"),
    [("clinet", r"slot: got 'clinet'; .*Did you mean 'client'\?"), ("weights", "subclass of Weights")],
)
def test_a_wrong_slot(slot: str, said: str) -> None:
    with pytest.raises(MethodError, match=said):
        register(slot, "mine")(type("Mine", (ClientRule,), {}))


# What hooks return ------------------------------------------------------------------------------------------------

SAVED = "tensors, numbers"


@pytest.mark.parametrize(
    ("hook", "value", "got", "expected"),
    [
        ("loss", torch.ones(()), "Tensor", "Loss"),
        ("loss", None, "None", "Loss"),
        ("correct", torch.ones(3), "Tensor", "None"),
        ("finish", {}, "dict", SAVED),
        ("finish", ({}, {"sum": 1.0}), r"item 2: dict with \['sum'\]: float", r"dict\[str, Tensor\]"),
        ("finish", ({"net": nn.Linear(1, 1)}, {}), r"item 1: dict with \['net'\]: Linear", SAVED),
        ("finish", ({"a": [np.float64(1)]}, {}), r"dict with \['a'\]\[0\]: float64", SAVED),
        ("setup", None, "None", SAVED),
        ("setup", {"seen": {1, 2}}, r"dict with \['seen'\]: set", SAVED),
        ("setup", {np.int64(1): 0}, "int64", SAVED),
        ("receive", None, "None", SAVED),
        ("begin", None, "None", "dict"),
        ("send", torch.ones(3), "Tensor", "dict"),
        ("phases", [Phase()], "list", r"tuple\[Phase, \.\.\.\]"),
        ("sample_weights", torch.ones(3), "Tensor", r"ndarray \| None"),
        ("ascend", 0.5, "float", r"Tensor \| None"),
        ("loss", Loss(torch.ones(4)), r"extra: a tensor of shape \[4\] on cpu", r"shape \[\] on cpu"),
        ("loss", Loss(torch.ones((), device="meta")), "on meta", r"shape \[\] on cpu"),
        ("loss", Loss(None), "extra: None", "a number"),
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


@pytest.mark.parametrize(
    ("slot", "hook"),
    [("direction", "direction"), ("optimizer", "broadcast"), ("optimizer", "step"), ("post", "apply")],
)
def test_a_vector_of_the_server_that_does_not_fit(slot: str, hook: str) -> None:
    """A scalar would be broadcast to all of w."""
    value = torch.ones(()) if hook == "broadcast" else (torch.ones((), dtype=torch.float64), {})
    body = {hook: lambda self, *args: value} | ({"streams": False} if slot == "direction" else {})
    rule = type("Mine", (registered[slot].get(slot, NEUTRAL[slot]),), body)()
    said = (
        rf"{hook} of rule 'Mine': returned a tensor of shape \[\] on cpu; expected one of shape \[83\] on cpu"
    )
    with pytest.raises(MethodError, match=said):
        run(class_run(with_rules(**{slot: rule}), rounds=1))


def test_a_right_return() -> None:
    """All that a checkpoint can store may be in a state, and anything in what is sent down."""
    state = {"a": {0: torch.ones(1), "b": [1, 2.5, None, "text", (True,)]}}
    body = {
        "setup": lambda self, federation: state,
        "send": lambda self, server, client, view: {"head": Head(None, torch.ones(1)), "any": object()},
    }
    rule = type("Mine", (ClientRule,), body)()
    assert rule.setup(None) is state and rule.send({}, 0, None)
