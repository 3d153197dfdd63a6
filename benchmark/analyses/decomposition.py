"""What the global loss is made of after one round: FedLD's Eq. 2.

Zeng, Guo, Wang, Wang, Zhou, Qu, FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, section 2.2

With r_i = n_i / n, w_i the locally trained models, w the aggregated one, L_j(v) the plain cross-entropy of v on the
training samples of client j (evaluation mode, no augmentation) and L(v) = sum_j r_j L_j(v):

    L(w) = sum_i r_i L_i(w_i) + sum_i r_i (L(w_i) - L_i(w_i)) + sum_i r_i (L(w) - L(w_i)).
           local loss           distribution shift             aggregation

Distribution shift loss and aggregation loss are the absolute values of the second and third sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.frozen import FrozenView
from methods.core.contexts import ClientContext, Federation, Reducer, RoundView, State, Trained
from methods.core.rules import Aggregator, ClientRule


@dataclass(frozen=True)
class Decomposition:
    """The three terms of Eq. 2, with their signs; they sum to L(w)."""

    local: float
    shift_signed: float
    aggregation_signed: float

    @property
    def total(self) -> float:
        """L(w)."""
        return self.local + self.shift_signed + self.aggregation_signed

    @property
    def shift(self) -> float:
        """Distribution shift loss: the absolute value of the sum."""
        return abs(self.shift_signed)

    @property
    def aggregation(self) -> float:
        """Aggregation loss: the absolute value of the sum."""
        return abs(self.aggregation_signed)


def decompose(local: np.ndarray, aggregated: np.ndarray, r: np.ndarray) -> Decomposition:
    """Eq. 2 from ``local`` [m, m], local[j, i] = L_j(w_i), ``aggregated`` [m], L_j(w), and shares r [m]."""
    own, everywhere = local.diagonal(), r @ local  # L_i(w_i), L(w_i)
    return Decomposition(
        local=float(r @ own),
        shift_signed=float(r @ (everywhere - own)),
        aggregation_signed=float(r @ aggregated - r @ everywhere),
    )


class LocalModels(ClientRule):
    """Sends every trained model with its BatchNorm buffers to the server, which keeps them. Changes nothing else."""

    key: ClassVar[str] = "local_models"
    reducers: ClassVar[Mapping[str, Reducer]] = {"w": "keep", "buffers": "keep"}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Return ({}, the client's w_i [d] and buffers)."""
        return {}, {"w": trained.w, "buffers": trained.buffers}

    def receive(self, server: State, view: RoundView) -> State:
        """{w: {client: w_i}, buffers: {client: ...}} of this round."""
        return view.payload


class Several(Aggregator):
    """Several aggregations of the same updates. The model follows the first; the state keeps each Dbar by its name."""

    key: ClassVar[str] = "several"
    rules: dict[str, Aggregator]

    def setup(self, federation: Federation) -> State:
        """Each rule's own state."""
        return {name: rule.setup(federation) for name, rule in self.rules.items()}

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """Return (Dbar of the first rule, {name: Dbar})."""
        found = {name: rule.direction(updates, p, view, state[name])[0] for name, rule in self.rules.items()}
        return next(iter(found.values())), found


@torch.no_grad()
def client_losses(run: FederatedRun, w: Tensor, buffers: Tensor) -> np.ndarray:
    """L_j(w) [K]: mean cross-entropy over all training samples of each client, in evaluation mode."""
    model = FrozenView(run.model, run.clients.pool.loaded, w, buffers)
    losses = np.zeros(run.num_clients)
    for j in range(run.num_clients):
        for x, y in run.clients.data(j).batches():
            logits = model.logits(x).double()
            losses[j] += float(F.cross_entropy(logits, y, reduction="sum"))
    return losses / np.maximum(run.clients.sizes, 1)


def one_round(run: FederatedRun, directions: Mapping[str, Aggregator]) -> dict[str, Decomposition]:
    """Train one round with all clients and the client rules of ``run``, and apply Eq. 2 to each aggregation.

    Each local model is evaluated with its own BatchNorm buffers, the aggregated ones with the averaged buffers.
    """
    client = (*run.method.client, LocalModels())
    method = replace(run.method, client=client, direction=Several(rules=dict(directions)))
    schedule = replace(run.schedule, rounds=1, clients_per_round=run.num_clients)
    run = replace(run, method=method, schedule=schedule)
    before = run.initial_state()
    after, _ = run.step(before)
    kept = after.rules[LocalModels.key]
    clients = range(run.num_clients)
    local = np.stack([client_losses(run, kept["w"][i], kept["buffers"][i]) for i in clients], axis=1)
    r = run.clients.sizes / run.clients.sizes.sum()
    found = {}
    for name, dbar in after.direction.items():
        w, _ = run.method.optimizer.step(before.w, dbar, before.optimizer)
        found[name] = decompose(local, client_losses(run, w, after.buffers), r)
    return found
