"""Prototypes: class means of features from the clients, averaged by count at the server (FedMR, FedProc, FedPAC)."""

import torch
import torch.nn.functional as F

from methods.core.contexts import (
    ClientContext,
    Federation,
    FrozenModel,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import ClientRule


class Prototypes(ClientRule):
    """Sends prototypes ``g`` [C, h] down and class sums of features up; ``known`` [C] says which classes have one."""

    reducers = {"sums": "sum", "counts": "sum"}

    def setup(self, federation: Federation) -> State:
        """No class has a prototype yet."""
        w, classes = federation.w, federation.num_classes
        return {
            "g": torch.zeros(classes, federation.feature_dim, dtype=w.dtype, device=w.device),
            "known": torch.zeros(classes, dtype=torch.bool, device=w.device),
        }

    def send(self, server: State, client: int, view: RoundView) -> State:
        """The prototypes, once there are some."""
        return {"g": server["g"], "known": server["known"]} if server["known"].any() else {}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Class sums of the features of the trained model, N_c g_k^c [C, h], and N_c [C]."""
        return {}, class_sums(ctx, ctx.frozen(trained.w, trained.buffers))

    def receive(self, server: State, view: RoundView) -> State:
        """g_c = sum_k N_k^c g_k^c / sum_k N_k^c over those who submitted c; other classes keep their old g_c."""
        if "sums" not in view.payload:
            return server
        sums, counts = view.payload["sums"], view.payload["counts"]
        there = counts > 0
        g = torch.where(there[:, None], sums / counts.clamp_min(1)[:, None], server["g"])
        return server | {"g": g, "known": server["known"] | there}


def class_sums(ctx: ClientContext, model: FrozenModel, squares: bool = False) -> State:
    """``sums`` [C, h] of the features of the client's samples under ``model``, and ``counts`` [C].

    With ``squares`` also those of ||z||^2 [C]. In evaluation mode, without augmentation.
    """
    total: State = {}
    for x, y in ctx.data.batches():
        z = model.features(x)
        one_hot = F.one_hot(y, ctx.num_classes).to(z.dtype)
        part = {"sums": one_hot.T @ z, "counts": one_hot.sum(0)}
        if squares:
            part["squares"] = one_hot.T @ z.square().sum(1)
        total = {name: total.get(name, 0.0) + value for name, value in part.items()}
    return total
