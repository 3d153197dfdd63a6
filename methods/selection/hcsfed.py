"""HCSFed: Fast Heterogeneous Federated Learning with Hybrid Client Selection.

Song, Shen, Gao, Yang, Zhou, Pan, Lou, Zhou, UAI 2023, https://arxiv.org/abs/2208.05135

Round 0: everybody trains; client k compresses its update D_k to d' = max(least, floor(r d)) numbers x_k, the sorted
centroids of a 1-D k-means of its d coordinates; the server clusters the x_k into Hc clusters, once. Later rounds: the
number of clients from each cluster follows its spread (Neyman allocation), and within it clients with a large ||x_k||
are drawn more often.

FedDiverse (section 5.3) only says "randomly select clients from each cluster": ``allocation: equal``, ``within:
uniform`` and ``min_per_cluster: 1`` are the literal reading. ``docs/fidelity.md`` describes its code
(``variant: reference``).
"""

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmark.errors import wrong
from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import MethodError, Selection, VariantRule, register
from methods.shared.draw import without_replacement

ITERATIONS = 300
"""Most iterations of the compression; it usually stops long before, when no coordinate changes its centroid."""


@register("selection", "hcsfed")
class HCSFed(VariantRule, Selection):
    """Clients from clusters of compressed first updates: more from clusters that are large and spread out.

    ``r``: compression rate; ``least``: smallest d'; ``Hc``: number of clusters; ``allocation``: clients per cluster in
    proportion to N_h S_h (``neyman``) or the same from each (``equal``); ``within``: drawn by ||x_k|| (``norm``) or
    ``uniform``; ``min_per_cluster``: clients from every cluster before the rest are allocated; ``compress``: update |
    weights; ``centroids``: sorted | unsorted; ``rounding`` of the allocation; ``epsilon``, added to N_h - 1.
    """

    reference = {
        "compress": "weights",
        "centroids": "unsorted",
        "rounding": "random",
        "epsilon": 1e-6,
    }

    r: float = Field(gt=0, le=1)
    least: int = Field(default=1, ge=1)
    Hc: int = Field(ge=1)
    allocation: Literal["neyman", "equal"] = "neyman"
    within: Literal["norm", "uniform"] = "norm"
    min_per_cluster: int = Field(default=0, ge=0)
    compress: Literal["update", "weights"] = "update"
    centroids: Literal["sorted", "unsorted"] = "sorted"
    rounding: Literal["largest_remainder", "random"] = "largest_remainder"
    epsilon: float = Field(default=0.0, ge=0)

    def watches(self, round: int) -> bool:
        """Only the updates of round 0."""
        return round == 0

    def setup(self, clients: ClientPool) -> State:
        """No state yet. MethodError if there are fewer clients than clusters."""
        if self.Hc > clients.num_clients:
            raise MethodError(
                wrong("selection.Hc", self.Hc, f"1 to {clients.num_clients}, the number of clients")
            )
        return {}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """Everybody in round 0, then m_h clients of each cluster h."""
        if round == 0:
            return range(clients.num_clients), {"w": clients.w} if self.compress == "weights" else state
        x = state["x"].cpu().numpy()
        if "labels" not in state:  # the clusters of all later rounds
            x = rng.permuted(x, axis=1) if self.centroids == "unsorted" else x
            state = {"x": torch.from_numpy(x), "labels": cluster(x, self.Hc, rng).tolist()}
        labels = np.array(state["labels"])
        counts = self._counts(kappa, x, labels, rng)
        norms = np.linalg.norm(x, axis=1) if self.within == "norm" else np.ones(len(x))
        ids: list[int] = []
        for h, count in enumerate(counts.tolist()):
            members = np.flatnonzero(labels == h)
            ids += members[without_replacement(rng, norms[members], count)].tolist()
        return ids, state

    def _counts(self, kappa: int, x: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """m_h [Hc] of this round."""
        sizes = np.bincount(labels, minlength=self.Hc)
        first = np.minimum(sizes, self.min_per_cluster)
        if first.sum() > kappa:
            what = f"less: {first.sum()} clients would be asked for, but {kappa} take part (train.clients_per_round)"
            raise MethodError(wrong("selection.min_per_cluster", self.min_per_cluster, what))
        weights = np.ones(self.Hc)
        if self.allocation == "neyman":
            weights = sizes * spread(x, labels, self.Hc, self.epsilon)
        left, room = kappa - int(first.sum()), sizes - first
        if self.rounding == "random":
            return first + allocate_at_random(left, weights, room, rng)
        return first + allocate(left, weights, room)

    def observe(self, ids: Sequence[int], updates: Tensor, state: State) -> State:
        """The x_k [K, d'] that the clients of round 0 send."""
        size = max(self.least, int(self.r * updates.shape[1]))
        start = state.get("w")
        vectors = (update if start is None else start + update for update in updates)
        return {"x": torch.from_numpy(np.stack([compressed(v.cpu().numpy(), size) for v in vectors]))}

    def measures(self, state: State) -> dict[str, float]:
        """d', the numbers that each client has sent, once."""
        return {"compressed_scalars": state["x"].shape[1]} if "x" in state else {}


def compressed(values: np.ndarray, size: int) -> np.ndarray:
    """Ascending centroids [size], float64, of a 1-D k-means of ``values`` [d]; the values themselves if d <= size.

    Lloyd's iterations from evenly spaced quantiles, so nothing is drawn. On sorted values a cell is an interval between
    two midpoints, and its mean a difference of prefix sums: O(d log d) for the sort, then O(size log d) an iteration.
    An empty cell keeps its centroid.
    """
    # In float32 the middle of two centroids might be rounded onto a value.
    ordered = np.sort(values).astype(np.float64)
    if len(ordered) <= size:
        return ordered
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    centres = ordered[((np.arange(size) + 0.5) * len(ordered) / size).astype(np.int64)]
    before: np.ndarray | None = None
    for _ in range(ITERATIONS):
        # A value in the middle of two centroids belongs to the lower one.
        edges = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2, side="right")
        if before is not None and np.array_equal(edges, before):
            break
        before = edges
        bounds = np.concatenate([[0], edges, [len(ordered)]])
        counts = np.diff(bounds)
        filled = counts > 0
        centres[filled] = np.diff(sums[bounds])[filled] / counts[filled]
    return np.sort(centres)


def cluster(x: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Cluster [K], 0 to clusters - 1, of each row of x [K, d'] by k-means; some are empty if rows are equal."""
    import sklearn.cluster  # slow to import, and needed once in a run

    model = sklearn.cluster.KMeans(clusters, n_init=10, tol=1e-12, random_state=int(rng.integers(2**31)))
    # Sums over several threads come in no fixed order.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        return model.fit_predict(x)


def spread(x: np.ndarray, labels: np.ndarray, clusters: int, epsilon: float = 0.0) -> np.ndarray:
    """S_h = sum over ordered pairs i, j in cluster h of ||x_i - x_j||^2 / (N_h - 1 + epsilon) [Hc]; 0 if N_h < 2."""
    result = np.zeros(clusters)
    for h in range(clusters):
        members = x[labels == h]
        N = len(members)
        if N > 1:
            # sum_ij ||x_i - x_j||^2 = 2 N sum_i ||x_i - mean||^2
            result[h] = 2 * N * ((members - members.mean(axis=0)) ** 2).sum() / (N - 1 + epsilon)
    return result


def allocate(total: int, weights: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Whole numbers m_h <= room_h that sum to ``total``, in proportion to ``weights`` [Hc], by largest remainder.

    What does not fit goes to the others in proportion; where all weights are 0, in proportion to ``room``.
    """
    share = np.zeros(len(weights))
    open_ = room > 0
    left = float(total)
    while left > 0 and open_.any():
        quotas = np.where(open_, weights, 0.0)
        quotas = quotas if quotas.sum() > 0 else np.where(open_, room - share, 0.0)
        wanted = left * quotas / quotas.sum()
        over = open_ & (wanted >= room)
        if not over.any():
            share = np.where(open_, wanted, share)
            break
        share[over] = room[over]
        open_ &= ~over
        left = total - share.sum()
    whole = np.floor(share)
    order = np.argsort(-(share - whole), kind="stable")
    order = order[(whole < room)[order]]
    whole[order[: total - int(whole.sum())]] += 1
    return whole.astype(np.int64)


def allocate_at_random(
    total: int, weights: np.ndarray, room: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """As FedDiverse's code: quotas rounded, capped, then moved by 1 at random until they sum to ``total``."""
    quotas = weights if weights.sum() > 0 else room.astype(np.float64)
    counts = np.minimum(np.rint(total * quotas / (quotas.sum() or 1.0)), room).astype(np.int64)
    while counts.sum() != total:
        step = 1 if counts.sum() < total else -1
        able = np.flatnonzero(counts < room if step == 1 else counts > 0)
        counts[rng.choice(able)] += step
    return counts
