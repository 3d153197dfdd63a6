"""A method = client rules + server slots + prediction (+ a selection of its own), built from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmark.errors import nearest
from methods.core.registry import MethodError, make
from methods.core.rules import (
    Aggregator,
    ClientRule,
    Post,
    Prediction,
    Rule,
    Selection,
    ServerOptimizer,
    Weights,
)

SERVER_SLOTS = ("weights", "direction", "optimizer", "post")
NEUTRAL = {"weights": "size", "direction": "mean", "optimizer": "add", "post": "none"}
KEYS = ("name", "label", "tables", "client", "server", "prediction", "selection")
"""``label`` and ``tables`` (which tables have a row for the method) are read by the harness alone."""


@dataclass(frozen=True)
class Method:
    """One row of a table: orthogonal parts that compose (see ``methods/core/rules.py``)."""

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

    def for_clients(self, num_clients: int, per_round: int) -> Method:
        """This method for a federation of K clients of which at most ``per_round`` take part in a round."""
        return replace(self, client=tuple(rule.for_clients(num_clients, per_round) for rule in self.client))

    def plain(self) -> Method:
        """FedAvg with this method's weights and selection, for rounds of pre-training."""
        neutral = {
            slot: make(slot, NEUTRAL[slot], {}, "plain") for slot in ("direction", "optimizer", "post")
        }
        return replace(self, client=(), **neutral)

    def keeps_updates(self, round: int) -> bool:
        """Whether all updates of ``round`` must be in memory at once."""
        chosen = self.selection
        asked = chosen.watches(round) or chosen.reweighs
        return asked or not self.direction.streams or self.weights.needs_training

    def check(self) -> None:
        """Refuse combinations that no rule of their own would notice; then ask every part."""
        owners = [rule.key for rule in self.client if rule.owns_head]
        if len(owners) > 1:
            raise MethodError(
                f"method {self.name!r}: {' and '.join(owners)} both decide what the head is; keep one of them"
            )
        for hook, what in (
            ("phases", "the phases of local training"),
            ("sample_weights", "how local samples are drawn"),
            ("heads", "the heads"),
        ):
            several = [r.key for r in self.client if getattr(type(r), hook) is not getattr(ClientRule, hook)]
            if len(several) > 1:
                raise MethodError(
                    f"method {self.name!r}: {' and '.join(several)} both decide {what}; keep one of them"
                )
        shaping = [r.key for r in self.client if type(r).heads is not ClientRule.heads]
        whole = [r.key for r in self.client if r.equal_layouts]
        if shaping and whole:
            raise MethodError(
                f"method {self.name!r}: {whole[0]} keeps a vector of the whole model at each client, but {shaping[0]} "
                "hands out heads of different widths; drop one of them"
            )
        policies = {rule.key: rule.buffers for rule in self.client if rule.buffers}
        if len(set(policies.values())) > 1:
            raise MethodError(
                f"method {self.name!r}: different BatchNorm policies are asked for: {policies}; keep one rule"
            )
        asked = self.prediction.asks
        if asked is not None and all(rule.key != asked for rule in self.client):
            raise MethodError(
                f"method {self.name!r}: prediction {self.prediction.key!r} asks the client rule {asked}, which is not "
                "there; add it to method.client, or set method.prediction.name to global"
            )
        parts: tuple[Rule, ...] = (
            *self.client,
            self.weights,
            self.direction,
            self.optimizer,
            self.post,
            self.prediction,
            self.selection,
        )
        for rule in parts:
            rule.check(self)


def _slot(slot: str, node: Any, where: str) -> Any:
    if not isinstance(node, Mapping) or "name" not in node:
        raise MethodError(f"{where}: came {node!r}; expected a mapping with a name, like {{name: ...}}")
    parameters = {key: value for key, value in node.items() if key != "name"}
    return make(slot, str(node["name"]), parameters, where)


def build(config: Mapping[str, Any], selection: Mapping[str, Any] | None = None) -> Method:
    """Build a method from its configuration (a file of ``conf/method``).

    ``selection`` is the run's own choice; without one the method's is taken, and without that uniform selection.
    Raises :class:`MethodError` for unknown names, bad values and refused combinations.
    """
    for key in config:
        if key not in KEYS:
            raise MethodError(f"method.{key}: unknown key.{nearest(key, KEYS)} Allowed: {', '.join(KEYS)}.")
    server = config.get("server") or {}
    for key in server:
        if key not in SERVER_SLOTS:
            raise MethodError(
                f"method.server.{key}: unknown slot.{nearest(key, SERVER_SLOTS)} Allowed: {', '.join(SERVER_SLOTS)}."
            )
    slots = {
        slot: _slot(slot, server.get(slot) or {"name": NEUTRAL[slot]}, f"method.server.{slot}")
        for slot in SERVER_SLOTS
    }
    client = config.get("client") or {}
    if not isinstance(client, Mapping):
        raise MethodError(
            f"method.client: came {client!r}; expected a mapping from rule to parameters, like {{fedprox: {{mu: 0.1}}}}"
        )
    method = Method(
        name=str(config.get("name", "unnamed")),
        client=tuple(
            make("client", name, values or {}, f"method.client.{name}") for name, values in client.items()
        ),
        prediction=_slot("prediction", config.get("prediction") or {"name": "global"}, "method.prediction"),
        selection=_slot(
            "selection", selection or config.get("selection") or {"name": "uniform"}, "selection"
        ),
        **slots,
    )
    method.check()
    return method
