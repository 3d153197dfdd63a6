"""FedPAC: Personalized Federated Learning with Feature Alignment and Classifier Collaboration.

Xu, Tong, Huang, ICLR 2023, https://openreview.net/forum?id=SXZr8aDKia

One body for all, a head per client. A participant first measures its data under the model that it was given: the share
pi_c and feature mean mu_c of every class, H = (pi_c mu_c) [C, h] and V = (1/n) sum_c (pi_c mean ||z||^2_c - pi_c^2
||mu_c||^2). It trains its head alone for one epoch, then the body alone on CE + lambda R, R the squared distance of
features from the global prototype of their class. The server averages bodies and prototypes and gives every participant
the mix of heads sum_j alpha_j head_j that promises the least error on its own data (Eq. 10-12): alpha minimises a' P a
on the simplex, P_jl = [j = l] V_j + sum_c ⟨H_kc - H_jc, H_kc - H_lc⟩.

From the code of FedLD, whose Tables 1 and 3 have FedPAC: lambda 1, a rate of 0.1 for the head, weights below 0.001
dropped, R averaged over features.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from scipy.optimize import nnls
from torch import Tensor

from methods.core.contexts import (
    Batch,
    ClientContext,
    Federation,
    Head,
    Loss,
    Phase,
    Predictor,
    RoundView,
    ServerView,
    State,
    Trained,
)
from methods.core.rules import Prediction, register
from methods.core.vectors import BODY, HEAD, NORM, OTHER_NORM
from methods.shared.precision import float32
from methods.shared.prototypes import Prototypes, class_sums

SMALL = 1e-3
"""Weights of heads below this are dropped (code)."""


def statistics(sums: Tensor, counts: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """(V scalar, H [C, h]) from the class sums of z [C, h], the counts [C], and the class sums of ||z||^2 [C].

    Both are 0 for a client without samples. V is a variance; rounding must not take it below 0.
    """
    n = counts.sum().clamp_min(1)
    H = sums / n  # pi_c mu_c
    return ((squares / n).sum() - H.square().sum()).clamp_min(0) / n, H


def quadratic_form(V: np.ndarray, H: np.ndarray, k: int) -> np.ndarray:
    """P [m, m] of participant ``k`` from V [m] and H [m, C, h]."""
    away = (H[k] - H).reshape(len(H), -1)
    return np.diag(V) + away @ away.T


def on_simplex(P: np.ndarray) -> np.ndarray:
    """alpha [m] that minimises a' P a over a >= 0, sum a = 1, for P [m, m] positive semidefinite.

    x >= 0 with the smallest x' P x - 2 sum x solves the same conditions up to its length (P x >= 1, = 1 where x > 0);
    with P = L L' that is the non-negative least squares problem ||L' x - L^-1 1||.
    """
    scale = np.trace(P) / len(P)
    if scale <= 0:
        return np.full(len(P), 1 / len(P))
    P = P / scale + 1e-10 * np.eye(len(P))
    L = np.linalg.cholesky(P)
    x, _ = nnls(L.T, np.linalg.solve(L, np.ones(len(P))))
    return x / x.sum()


def head_weights(V: np.ndarray, H: np.ndarray) -> np.ndarray:
    """alpha [m, m]: row k mixes the heads for participant k; small weights dropped, the rest brought to sum 1."""
    alpha = np.stack([on_simplex(quadratic_form(V, H, k)) for k in range(len(V))])
    alpha[alpha < SMALL] = 0
    return alpha / alpha.sum(1, keepdims=True)


@register("client", "fedpac")
class FedPAC(Prototypes):
    """Aligned features and mixed heads.

    ``lam``: weight lambda of the alignment; ``eta_head``: rate of the head's phase; ``E_head``: its epochs; ``align``
    mean | sum: R is averaged over features (code) or summed and halved.
    """

    owns_head = True
    equal_layouts = True
    needs = {"prediction": "fedpac"}
    reducers = {**Prototypes.reducers, "head": "keep", "V": "keep", "H": "keep"}

    lam: float = Field(ge=0, allow_inf_nan=False)
    eta_head: float = Field(gt=0, allow_inf_nan=False)
    E_head: int = Field(ge=1)
    align: Literal["mean", "sum"] = "mean"

    def setup(self, federation: Federation) -> State:
        """No prototypes; every client has the initial head."""
        first = federation.w[federation.layout.mask(HEAD).to(federation.w.device)]
        return super().setup(federation) | {"first": first, "heads": {}}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """The client's head, and the prototypes once there are some."""
        sent: State = {"head": Head(None, server["heads"].get(str(client), server["first"]))}
        return sent | super().send(server, client, view)

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        """The head alone on CE, then the body alone."""
        return (
            Phase(groups=(HEAD,), epochs=self.E_head, lr=self.eta_head, losses=False),
            Phase(groups=(BODY, NORM, OTHER_NORM)),
        )

    def begin(self, ctx: ClientContext) -> State:
        """V and H under the received model; what features are aligned to (from the second round on)."""
        model = ctx.frozen(ctx.w, ctx.buffers)
        measured = class_sums(ctx, model, squares=True)
        V, H = statistics(**measured)
        local: State = {"V": V, "H": H}
        if "g" in ctx.received and self.lam:
            # A class without a prototype is aligned to the client's own mean.
            mean = measured["sums"] / measured["counts"].clamp_min(1)[:, None]
            local["target"] = torch.where(ctx.received["known"][:, None], ctx.received["g"], mean)
        return local

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """lambda R, in float32 at least."""
        if "target" not in ctx.local:
            return Loss(0.0)
        with float32(batch.z) as z:
            squared = (z - ctx.local["target"][batch.y]).square()
            return Loss(self.lam * (squared.mean() if self.align == "mean" else squared.sum(1).mean() / 2))

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Uploads the head, V, H, and class sums under the trained model."""
        assert trained.head is not None
        _, sums = super().finish(ctx, trained)
        return {}, {"head": trained.head, "V": ctx.local["V"], "H": ctx.local["H"], **sums}

    def receive(self, server: State, view: RoundView) -> State:
        """New prototypes, and a new head for every participant."""
        clients = list(view.payload["head"])
        V, H = (
            torch.stack([view.payload[name][k] for k in clients]).double().cpu().numpy()
            for name in ("V", "H")
        )
        heads = torch.stack([view.payload["head"][k] for k in clients])
        mixed = torch.from_numpy(head_weights(V, H)).to(heads) @ heads
        new = {str(k): head for k, head in zip(clients, mixed, strict=True)}
        return super().receive(server, view) | {"heads": server["heads"] | new}


@register("prediction", "fedpac")
class OwnHeads(Prediction):
    """Mean over clients of the common body behind each client's head."""

    needs = {"client": "fedpac"}

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor per client."""
        state = view.rules["fedpac"]
        for client in range(view.num_clients):
            head = Head(None, state["heads"].get(str(client), state["first"]))
            yield view.model(client, head=head).logits
