"""Prototypes: class means of features from the clients, averaged by count at the server (FedMR, FedProc, FedPAC)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from methods.core.contexts import ClientContext, Federation, FrozenModel, Reducer, State

REDUCERS: Mapping[str, Reducer] = {"sums": "sum", "counts": "sum"}
"""How the uploads of :func:`class_sums` are combined."""


def none_yet(federation: Federation) -> State:
    """Prototypes ``g`` [C, h] of no class: ``known`` [C] is false everywhere."""
    w, classes = federation.w, federation.num_classes
    return {
        "g": torch.zeros(classes, federation.feature_dim, dtype=w.dtype, device=w.device),
        "known": torch.zeros(classes, dtype=torch.bool, device=w.device),
    }


def class_sums(ctx: ClientContext, model: FrozenModel, squares: bool = False) -> State:
    """``sums`` [C, h] of the features of the client's samples under ``model``, and ``counts`` [C].

    With ``squares`` also those of ||z||^2 [C]. In evaluation mode, without augmentation.
    """
    total: State = {}
    for x, y in ctx.data.batches():
        z = model.features(x)
        one_hot = F.one_hot(y, ctx.num_classes).to(z.dtype)
        found = {"sums": one_hot.T @ z, "counts": one_hot.sum(0)}
        if squares:
            found["squares"] = one_hot.T @ z.square().sum(1)
        total = {name: total.get(name, 0.0) + value for name, value in found.items()}
    return total


def updated(server: State, payload: State) -> State:
    """``server`` with g_c = sum_k (class sums) / sum_k (counts) of the uploads; other classes keep their old g_c."""
    if "sums" not in payload:
        return server
    sums, counts = payload["sums"], payload["counts"]
    there = counts > 0
    g = torch.where(there[:, None], sums / counts.clamp_min(1)[:, None], server["g"])
    return server | {"g": g, "known": server["known"] | there}
