"""HiCS-FL: Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated Learning.

Chen, Vikalo, NeurIPS 2024, https://arxiv.org/abs/2310.00198

The update Db_k [C] of the output layer's bias says which classes client k holds, and how evenly. Algorithm 1: in the
first ceil(N/K) rounds every client takes part once, in random order; Db_k is that of its last round. Then, in round t,

    H_k = entropy of softmax(Db_k / T)                                                                   (7)
    distance(u, k) = arccos( <Db_u, Db_k> / (|Db_u| |Db_k|) ) + lambda |H_u - H_k|                       (9)

put the clients into M clusters, by Ward's method. With p_k = n_k / n and the mean H of cluster m, clients are drawn one
after another, a cluster and one of its clients, until there are K of them (Eq. 10):

    pi_m = softmax over m of gamma_t mean H_m,    p_k / sum of p in the cluster,    gamma_t = gamma_0 (1 - t / rounds).

So clients with balanced data come more often at first, and all clusters equally often in the end. The server weights
the K clients equally: ``weights: {name: uniform}`` of the method. ``docs/fidelity.md`` describes the authors' code
(``variant: reference``).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from scipy.special import softmax
from scipy.stats import entropy
from torch import Tensor

from benchmark.errors import wrong
from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import MethodError, Selection, VariantRule, register
from methods.core.vectors import HEAD
from methods.shared.draw import without_replacement


@register("selection", "hicsfl")
class HiCSFL(VariantRule, Selection):
    """Clients from clusters by the update of the output layer; at first more from those with balanced data.

    ``T``: temperature, in units of the updates; ``lam``: weight of the entropies in the distance; ``gamma0``: how much
    balanced data are preferred at first; ``M``: clusters (null: K). ``layer``: its bias, or the ``whole`` of it, with H
    of each class's mean weight; ``points``: Ward's method takes distances, or the rows of their matrix as points;
    ``within`` a cluster clients are drawn by ``size``, or ``uniform``; ``refresh``: whether updates of later rounds
    replace a client's first.
    """

    reference = {"layer": "whole", "points": "rows", "within": "uniform", "refresh": False}

    T: float = Field(gt=0, allow_inf_nan=False)
    lam: float = Field(ge=0, allow_inf_nan=False)
    gamma0: float = Field(ge=0, le=100)
    M: int | None = Field(ge=1)
    layer: Literal["bias", "whole"] = "bias"
    points: Literal["distances", "rows"] = "distances"
    within: Literal["size", "uniform"] = "size"
    refresh: bool = True

    def watches(self, round: int) -> bool:
        """The updates of all rounds."""
        return True

    def setup(self, clients: ClientPool) -> State:
        """Nobody has been seen, all updates are 0. MethodError unless the output layer is linear with a bias."""
        head = [entry for entry in clients.layout.entries if entry.group == HEAD]
        if [entry.name for entry in head] != ["classifier.weight", "classifier.bias"]:
            names = ", ".join(entry.name for entry in head) or "no parameters"
            expected, where = "a linear one with a bias", "with another method, or choose selection=uniform"
            raise MethodError(wrong("selection hicsfl: classifier", names, expected, where=where))
        N, (C, h) = clients.num_clients, head[0].shape
        # Without the weights, only the bias is kept.
        weight = torch.zeros(N, C, h if self.layer == "whole" else 0, dtype=torch.float64)
        return {"unseen": list(range(N)), "weight": weight, "bias": weight.new_zeros(N, C)}

    def observe(self, ids: Sequence[int], updates: Tensor, state: State) -> State:
        """The participants' updates [m, d] of the output layer, which comes last in w."""
        rows = [row for row, k in enumerate(ids) if self.refresh or k in state["unseen"]]
        who = [ids[row] for row in rows]
        weight, bias = (state[name].cpu().clone() for name in ("weight", "bias"))
        C = bias.shape[1]
        layer = updates[:, -C * (weight.shape[2] + 1) :][rows].double().cpu()
        weight[who], bias[who] = layer[:, :-C].view(weight[who].shape), layer[:, -C:]
        return {"unseen": [k for k in state["unseen"] if k not in ids], "weight": weight, "bias": bias}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """Those who were not seen so far, at most kappa; then kappa by cluster."""
        N = clients.num_clients
        if kappa == N:
            return range(N), state
        if state["unseen"]:
            return rng.permutation(state["unseen"])[:kappa].tolist(), state
        H = self._entropies(state)
        labels = self._clusters(state, H, self.M or kappa)
        gamma = self.gamma0 * (1 - (round + 1) / clients.rounds)
        pi = softmax(gamma * np.bincount(labels, H) / np.bincount(labels))
        if self.within == "uniform":
            return one_by_one(pi, labels, kappa, rng), state
        p = pi[labels] * clients.sizes / np.bincount(labels, clients.sizes).clip(1)[labels]
        return without_replacement(rng, p, kappa).tolist(), state

    def _entropies(self, state: State) -> np.ndarray:
        """H [N] (Eq. 7)."""
        update = state["weight"].mean(2) if self.layer == "whole" else state["bias"]
        found: np.ndarray = entropy(softmax(update.cpu().numpy() / self.T, axis=1), axis=1)
        return found

    def _clusters(self, state: State, H: np.ndarray, M: int) -> np.ndarray:
        """Cluster [N] of each client, from 0; fewer than M where distances are equal."""
        updates = torch.cat([state["weight"].flatten(1), state["bias"]], dim=1).cpu().numpy()
        distances = angles(updates) + self.lam * np.abs(H[:, None] - H)  # Eq. 9
        condensed = pdist(distances) if self.points == "rows" else squareform(distances)
        tree = linkage(condensed, "ward")
        labels: np.ndarray = fcluster(tree, M, "maxclust") - 1
        return labels

    def measures(self, state: State) -> dict[str, float]:
        """Mean H of the clients: near 0 or log C it tells nobody apart, and T does not fit the updates."""
        return {"estimated_entropy": float(self._entropies(state).mean())}


def angles(x: np.ndarray) -> np.ndarray:
    """Angles [N, N] between the rows of x [N, s]; 0 from and to a row of length 0, as in the authors' code."""
    lengths = np.linalg.norm(x, axis=1)
    products = np.outer(lengths, lengths)
    cosines = np.divide(x @ x.T, products, out=np.ones_like(products), where=products > 0)
    found = np.arccos(cosines.clip(-1, 1))
    np.fill_diagonal(found, 0)
    return (found + found.T) / 2


def one_by_one(pi: np.ndarray, labels: np.ndarray, count: int, rng: Generator) -> list[int]:
    """``count`` clients: a cluster by pi [M] among those with clients left, then one of these, all equally likely."""
    left = [rng.permutation(np.flatnonzero(labels == m)).tolist() for m in range(len(pi))]
    ids: list[int] = []
    for _ in range(count):
        p = pi * [bool(members) for members in left]
        ids.append(left[rng.choice(len(pi), p=p / p.sum())].pop())
    return ids
