"""A method: its rules, which every module of the package ``methods`` registers, built from a file of ``conf/method``.

A new algorithm is one new file; nothing else is edited.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from benchmark.errors import nearest, validate, wrong
from methods.core.contexts import Generators
from methods.core.rules import (
    Aggregator,
    ClientRule,
    MethodError,
    Post,
    Prediction,
    Rule,
    Selection,
    ServerOptimizer,
    Weights,
    overrides,
    registered,
)

SINGLE_HOOKS = {
    "owns_head": "what the head is",
    "classifier": "what the classifier is",
    "phases": "the phases of local training",
    "sample_weights": "how local samples are drawn",
    "ascend": "where the second gradient is taken",
}
"""What only one client rule of a method may have, and what it decides."""

CONFLICTS = {
    ("equal_layouts", "heads"): "{} keeps whole models, but {} hands out heads of different widths",
    ("classifier", "owns_head"): "{} replaces the classifier of the model, and {} decides what the head is",
    ("trains_all", "phases"): "{} derives a gradient of the whole model, but {} trains it in parts",
}
"""What two client rules of a method may not have at once."""


@dataclass(frozen=True)
class Method:
    """One row of a table: client rules, the four slots of the server, a prediction and a selection."""

    name: str
    client: tuple[ClientRule, ...]
    weights: Weights
    direction: Aggregator
    optimizer: ServerOptimizer
    post: Post
    prediction: Prediction
    selection: Selection

    @property
    def personal(self) -> frozenset[str]:
        """Groups of parameters that stay at the clients."""
        return frozenset(group for rule in self.client for group in rule.personal)

    def keeps_updates(self, round: int) -> bool:
        """Whether all updates of ``round`` must be in memory at once."""
        asked = self.selection.watches(round) or self.selection.reweighs
        return asked or not self.direction.streams or self.weights.needs_training

    def check(self) -> None:
        """Raise ``MethodError`` for rules that cannot be combined."""
        self._check_client_rules()
        for rule in self.rules:
            for slot, name in rule.needs.items():
                held = [other.key for other in (self.client if slot == "client" else [getattr(self, slot)])]
                if not set(name.split("|")) & set(held):
                    where = f"method.{slot}" if slot in ("client", "prediction") else f"method.server.{slot}"
                    raise self.error(f"{rule.key} needs {name!r} in {where}; got {', '.join(held) or 'none'}")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all slots."""
        server = (self.weights, self.direction, self.optimizer, self.post)
        return (*self.client, *server, self.prediction, self.selection)

    def _check_client_rules(self) -> None:
        """Refuse client rules that decide the same, or of which one breaks what another relies on."""

        def having(hook: str) -> list[str]:
            return [rule.key for rule in self.client if overrides(rule, hook)]

        for hook, what in SINGLE_HOOKS.items():
            if len(having(hook)) > 1:
                raise self.error(f"{' and '.join(having(hook))} both decide {what}; keep one of them")
        for (one, other), text in CONFLICTS.items():
            if having(one) and having(other):
                raise self.error(f"{text.format(having(one)[0], having(other)[0])}; drop one of them")
        owners = having("owns_head") + having("classifier")
        if self.selection.trains_head and owners:
            raise self.error(
                f"selection {self.selection.key} trains the head of the global model, but {owners[0]} "
                "decides what the head is; drop one of them, or choose selection=uniform"
            )

    def error(self, text: str) -> MethodError:
        """The error about a combination that makes no sense."""
        return MethodError(f"method {self.name!r}: {text}.")


# Built from a configuration -------------------------------------------------------------------------------------


def names(slot: str) -> list[str]:
    """Sorted names of the rules registered in ``slot``."""
    return registered[slot].names()


def describe(slot: str, name: str) -> str:
    """First line of the docstring of a registered rule."""
    return (registered[slot].get(slot, name).__doc__ or "").strip().splitlines()[0]


def make(slot: str, name: str, parameters: Mapping[str, Any], where: str) -> Any:
    """Build the rule ``name`` of ``slot`` with ``parameters``.

    ``where`` is the configuration path, for the message. Raises :class:`MethodError` for an unknown name, an
    unknown or missing parameter, or a value out of range, `BrokenFile` if the rule's file cannot be imported.
    """
    rule = registered[slot].get(where, name)
    if not isinstance(parameters, Mapping):
        raise MethodError(wrong(where, parameters, "a mapping from parameter to value, like {mu: 0.1}"))
    after = f" Set it in conf/{where.partition('.')[0]}/ or on the command line."
    return validate(rule, parameters, f"{where}.", where, after=after, kind=MethodError)


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
    server, client = config.get("server") or {}, config.get("client") or {}
    for key, part, what in (
        ("server", server, "slot to rule, like {weights: {name: uniform}}"),
        ("client", client, "rule to parameters, like {fedprox: {mu: 0.1}}"),
    ):
        if not isinstance(part, Mapping):
            raise MethodError(wrong(f"method.{key}", part, f"a mapping from {what}"))
    _refuse_unknown("method.server", server, NEUTRAL)
    selection = selection or config.get("selection") or {"name": "uniform"}
    method = Method(
        name=str(config.get("name", "unnamed")),
        client=tuple(
            make("client", name, values or {}, f"method.client.{name}") for name, values in client.items()
        ),
        prediction=_rule("prediction", config.get("prediction") or {"name": "global"}, "method.prediction"),
        selection=_rule("selection", selection, "selection"),
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
    method: Method, feature_dim: int, num_classes: int, num_clients: int, generators: Generators
) -> dict[str | None, nn.Module]:
    """The classifiers that the client rules and the selection ask for, by key; None: the model's own."""
    heads: dict[str | None, nn.Module] = {}
    for rule in (*method.client, method.selection):
        heads.update(rule.heads(feature_dim, num_classes, num_clients, generators))
        own = rule.classifier(feature_dim, num_classes, generators) if isinstance(rule, ClientRule) else None
        heads |= {} if own is None else {None: own}
    return heads


def _refuse_unknown(where: str, given: Iterable[str], keys: Iterable[str]) -> None:
    for key in given:
        if key not in keys:
            hint = f" It stands below server: method.server.{key}." if key in NEUTRAL else nearest(key, keys)
            expected = f"expected one of: {', '.join(keys)}.{hint}"
            raise MethodError(f"{where}.{key}: unknown key; {expected}")


def _rule(slot: str, node: Any, where: str) -> Any:
    if not isinstance(node, Mapping) or "name" not in node:
        raise MethodError(wrong(where, node, "a mapping with a name, like {name: ...}"))
    parameters = {key: value for key, value in node.items() if key != "name"}
    return make(slot, str(node["name"]), parameters, where)
