"""Builds a method from its configuration, a file of ``conf/method``."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from benchmark.errors import nearest, wrong
from methods.core.contexts import Generators
from methods.core.errors import MethodError
from methods.core.registry import make
from methods.core.rules import ClientRule, Method, Selection

NEUTRAL = {"weights": "size", "direction": "mean", "optimizer": "add", "post": "none"}
"""The slots of the server and what FedAvg has in them."""

KEYS = ("name", "label", "tables", "client", "server", "prediction", "selection")
"""``label`` and ``tables`` (which tables have a row for the method) are for the benchmark, not for the rules."""


def build(config: Mapping[str, Any], selection: Mapping[str, Any] | None = None) -> Method:
    """Build a method from its configuration.

    Args:
        config: The content of a file of ``conf/method``. What it leaves out is neutral.
        selection: The run's own choice. None: the method's, or uniform selection.

    Raises:
        MethodError: For unknown names, wrong values and combinations that are refused.
    """
    _refuse_unknown("method", config, KEYS)
    server = config.get("server") or {}
    _refuse_unknown("method.server", server, NEUTRAL)
    client = config.get("client") or {}
    if not isinstance(client, Mapping):
        what = "a mapping from rule to parameters, like {fedprox: {mu: 0.1}}"
        raise MethodError(wrong("method.client", client, what))
    chosen = selection or config.get("selection") or {"name": "uniform"}
    method = Method(
        name=str(config.get("name", "unnamed")),
        client=tuple(
            make("client", name, values or {}, f"method.client.{name}") for name, values in client.items()
        ),
        prediction=_rule("prediction", config.get("prediction") or {"name": "global"}, "method.prediction"),
        selection=_rule("selection", chosen, "selection"),
        **{slot: _rule(slot, server.get(slot) or {"name": NEUTRAL[slot]}, f"method.server.{slot}")
           for slot in NEUTRAL},
    )  # fmt: skip
    method.check()
    return method


def plain(method: Method) -> Method:
    """FedAvg with the weights and the selection of ``method``, for rounds of pre-training."""
    neutral = {slot: make(slot, NEUTRAL[slot], {}, slot) for slot in ("direction", "optimizer", "post")}
    return replace(method, client=(), **neutral)


def asked_heads(
    method: Method, feature_dim: int, num_classes: int, generators: Generators
) -> dict[str, nn.Module]:
    """The classifiers that the client rules and the selection ask for, by key."""
    heads: dict[str, nn.Module] = {}
    rules: tuple[ClientRule | Selection, ...] = (*method.client, method.selection)
    for rule in rules:
        heads |= rule.heads(feature_dim, num_classes, generators)
    return heads


def _refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            expected = f"expected one of: {', '.join(known)}.{nearest(key, known)}"
            raise MethodError(f"{where}.{key}: unknown key; {expected}")


def _rule(slot: str, node: Any, where: str) -> Any:
    if not isinstance(node, Mapping) or "name" not in node:
        raise MethodError(wrong(where, node, "a mapping with a name, like {name: ...}"))
    parameters = {key: value for key, value in node.items() if key != "name"}
    return make(slot, str(node["name"]), parameters, where)
