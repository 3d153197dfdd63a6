"""FedMR: Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping.

Fan, Yao, Zhang, Lyu, Zhang, Wang, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7

Eq. 5: L = CE + mu1 intra + mu2 inter. The intra-class loss (Eq. 3) decorrelates the features within each class of the
mini-batch, so that they do not collapse; the inter-class loss (Eq. 4) asks of each sample to lie closer to the global
prototype of its own class than to any other, so that it does not take the room of classes that the client lacks.
Prototypes g_c are class means of features, taken after local training and averaged at the server (Algorithm 1).

Eq. 4 sums c_j over the client's own classes, but prototypes are introduced as the support of the missing ones:
``inter_cj`` = ``all`` takes every class with a prototype, ``batch`` and ``client`` only those present there. In a
mini-batch, classes with one sample have no M_c. The public code has the intra-class loss only, in another form
(``variant: reference``, ``methods/fidelity/fedmr.yaml``): unbiased variance, and of A_c = zh' zh the mean of the
squared off-diagonal entries; the sum over classes is divided by their number of samples.
"""

import math
from collections.abc import Collection
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.errors import wrong
from methods.core.contexts import Batch, ClientContext, Federation, Loss, RoundView, State, Trained
from methods.core.rules import MethodError, VariantRule, Weights, register
from methods.core.samples import to_device
from methods.shared import fast
from methods.shared.precision import float32
from methods.shared.prototypes import Prototypes

# The equations. The rule computes the same in fewer kernels, with ``methods/shared/fast.py``. -----------------------


def intra_class(z: Tensor, y: Tensor, eps: float) -> Tensor:
    """Eq. 3 for features z [B, h] of a batch with labels y [B]: a scalar, 0 if no class has two samples."""
    C = [c for c in y.unique() if (y == c).sum() >= 2]
    total = 0 * z.sum()
    for c in C:
        z_c = z[y == c]
        mu, var = z_c.mean(0), z_c.var(0, correction=0)
        zh = (z_c - mu) / (var + eps).sqrt()
        M = zh.T @ zh / (len(z_c) - 1)
        total = total + M.square().sum()
    return total / max(len(C), 1)


def inter_class(z: Tensor, y: Tensor, g: Tensor, C: Collection[int]) -> Tensor:
    """Eq. 4 for features z [B, h], labels y [B] and prototypes g [C, h] of the classes ``C``; 0 for fewer than two."""
    total = 0 * z.sum()
    for ci in {int(c) for c in y} & set(C):
        for cj in set(C) - {ci}:
            z_ci = z[y == ci]
            D = ((z_ci - g[ci]).norm(dim=1) - (z_ci - g[cj]).norm(dim=1)).clamp(min=0).mean()
            total = total + D
    return total / max(len(C) * (len(C) - 1), 1)


# The rule --------------------------------------------------------------------------------------------------------


@register("client", "fedmr")
class FedMR(VariantRule, Prototypes):
    """Intra-class loss against collapse, inter-class loss against invasion of missing classes.

    ``mu1``, ``mu2``: weights of the two losses (0 switches one off; without the inter-class loss no prototypes are
    made or sent). ``lite``: the inter-class loss sees this many samples of each batch (Lite-10, Lite-50; null: all).
    ``submit``: share of clients, drawn before round 0, that upload prototypes (Table 5). ``eps``: added to variances.
    """

    mu1: float = Field(ge=0, allow_inf_nan=False)
    mu2: float = Field(ge=0, allow_inf_nan=False)
    eps: float = Field(default=1e-8, ge=0, allow_inf_nan=False)
    inter_cj: Literal["all", "batch", "client"] = "all"
    lite: int | None = Field(default=None, ge=1)
    submit: float = Field(default=1.0, gt=0, le=1)

    def setup(self, federation: Federation) -> State:
        """No class has a prototype yet; draws who will submit."""
        h = federation.feature_dim
        if self.mu1 and h < 2:
            what = f"0, or a model (model=...) with at least 2 features to decorrelate; this one has {h}"
            raise MethodError(wrong("method.client.fedmr.mu1", self.mu1, what))
        if not self.mu2:
            return {}
        clients = federation.num_clients
        number = math.ceil(self.submit * clients - 1e-9)  # 0.07 x 100 is a little more than 7 in floats
        drawn = federation.generators("submitters").choice(clients, number, replace=False)
        return super().setup(federation) | {"submitters": sorted(drawn.tolist())}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """The prototypes, once there are some, and whether this client is to submit its own."""
        if not self.mu2:
            return {}
        flag = {"submit": client in server["submitters"]} if self.submit < 1 else {}
        return super().send(server, client, view) | flag

    def begin(self, ctx: ClientContext) -> State:
        """The generator that picks Lite's samples, and the pairs of classes of Eq. 4 if all batches have the same."""
        local: State = {"lite": ctx.generators("lite")} if self.lite else {}
        if self.mu2 and "g" in ctx.received and self.inter_cj != "batch":
            g, C = ctx.received["g"], ctx.received["known"]
            if self.inter_cj == "client":
                C = C & to_device(torch.from_numpy(ctx.label_counts > 0), C.device)
            local["pairs"] = fast.pairs(C, g.dtype)
        return local

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Eq. 5: mu1 intra + mu2 inter, in float32 at least."""
        extra: Tensor | float = 0.0
        with float32(batch.z) as z:
            if self.mu1:
                extra = self.mu1 * fast.intra_class(z, batch.y, self.eps, self.variant)
            if self.mu2 and "g" in ctx.received:
                extra = self.mu2 * self._inter(ctx, z, batch.y) + extra
        return Loss(extra)

    def _inter(self, ctx: ClientContext, z: Tensor, y: Tensor) -> Tensor:
        if self.lite is not None and self.lite < len(y):
            rng: np.random.Generator = ctx.local["lite"]
            picked = to_device(torch.from_numpy(rng.choice(len(y), self.lite, replace=False)), y.device)
            z, y = z[picked], y[picked]
        g, C = ctx.received["g"], ctx.received["known"]
        if self.inter_cj == "batch":
            pairs = fast.pairs(C & torch.zeros_like(C).index_fill(0, y, True), g.dtype)
        else:
            pairs = ctx.local["pairs"]
        return fast.inter_class(z, y, g, *pairs)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """The client's prototypes, if it is to submit them."""
        submits = self.mu2 and ctx.received.get("submit", True)
        return super().finish(ctx, trained) if submits else ({}, {})


@register("weights", "batches")
class BatchWeights(Weights):
    """p_k in proportion to the client's number of local steps: what FedMR's public code weighs by."""

    needs_training = True

    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]; by samples if nobody took a step."""
        size = view.steps if view.steps.sum() else view.sizes
        return size / size.sum()
