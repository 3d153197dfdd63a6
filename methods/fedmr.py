"""FedMR: Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping.

Fan, Yao, Zhang, Lyu, Zhang, Wang, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7

Eq. 5: L = CE + mu1 intra + mu2 inter. The intra-class loss (Eq. 3) decorrelates the features within each class of the
mini-batch, so that they do not collapse; the inter-class loss (Eq. 4) asks of each sample to lie closer to the global
prototype of its own class than to any other, so that it does not take the room of classes that the client lacks.
Prototypes g_c are class means of features, taken after local training and averaged at the server (Algorithm 1).

Eq. 4 sums c_j over the client's own classes, but prototypes are introduced as the support of the missing ones:
``inter_cj`` = ``all`` takes every class with a prototype, ``batch`` and ``client`` only those present there. In all
three the loss is the mean over the pairs (c_i, c_j); a class that is not in the batch adds 0. In a
mini-batch, classes with one sample have no M_c. The public code has the intra-class loss only, in another form
(``variant: reference``, ``docs/fidelity.md``): unbiased variance, and of A_c = zh' zh the mean of the
squared off-diagonal entries; the sum over classes is divided by their number of samples. So a weight of the code's
form is another number in Eq. 3's form: see `conversion`.
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


def conversion(N: float, h: int) -> float:
    """Weight of Eq. 3's form for a weight of 1 of the code's form: the same gradient if each class has N samples.

    With B_c = ||zh' zh||^2 for the population variance, Eq. 3 is the mean of B_c/(N - 1)^2. The code's zh are shorter
    by sqrt((N - 1)/N), and its diagonal is constant: the gradient of ((N - 1)/N)^2 B_c/(N h (h - 1)). Below two samples
    neither form has a gradient; N = 2 then.
    """
    N = max(N, 2.0)
    return (N - 1) ** 4 / (N**3 * h * (h - 1))


def inter_class(z: Tensor, y: Tensor, g: Tensor, C_k: Collection[int], C: Collection[int]) -> Tensor:
    """Eq. 4 for features z [B, h], labels y [B] and prototypes g [C, h]: c_i in ``C_k``, c_j in ``C``; 0 without pairs.

    ``C_k``: the client's classes that have a prototype; all of them are in ``C``.
    """
    total = 0 * z.sum()
    for ci in {int(c) for c in y} & set(C_k):
        for cj in set(C) - {ci}:
            z_ci = z[y == ci]
            D = ((z_ci - g[ci]).norm(dim=1) - (z_ci - g[cj]).norm(dim=1)).clamp(min=0).mean()
            total = total + D
    return total / max(len(C_k) * (len(C) - 1), 1)


# The rule --------------------------------------------------------------------------------------------------------


@register("client", "fedmr")
class FedMR(VariantRule, Prototypes):
    """Intra-class loss against collapse, inter-class loss against invasion of missing classes.

    ``mu1``, ``mu2``: weights of the two losses (0 switches one off; without the inter-class loss no prototypes are
    made or sent). ``mu1`` null: ``mu1_code``, the weight in the unit of the authors' code, times ``mu1_ratio``, or
    times `conversion` for the mean number of samples of a class in a batch; with ``variant: reference`` as it is. The
    server computes it once, and sends it. ``lite``: the inter-class loss sees this many samples of each batch (Lite-10,
    Lite-50; null: all). ``submit``: share of clients, drawn before round 0, that upload prototypes (Table 5).
    ``eps``: added to variances.
    """

    mu1: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    mu1_code: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    mu1_ratio: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    mu2: float = Field(ge=0, allow_inf_nan=False)
    eps: float = Field(default=1e-8, ge=0, allow_inf_nan=False)
    inter_cj: Literal["all", "batch", "client"] = "all"
    lite: int | None = Field(default=None, ge=1)
    submit: float = Field(default=1.0, gt=0, le=1)

    @property
    def _given(self) -> float:
        """mu1, or the weight in the unit of the authors' code."""
        return self.mu1_code if self.mu1 is None else self.mu1

    @property
    def _converts(self) -> bool:
        """Whether mu1 depends on data and network."""
        return self.mu1 is None and self.variant == "paper" and self.mu1_code > 0

    def setup(self, federation: Federation) -> State:
        """No class has a prototype yet; converts mu1, and draws who will submit."""
        h = federation.feature_dim
        if self._given and h < 2:
            what = f"0, or a model (model=...) with at least 2 features to decorrelate; this one has {h}"
            raise MethodError(wrong("method.client.fedmr.mu1", self._given, what))
        state: State = {}
        if self._converts:
            B = min(federation.batch_size, federation.sizes.mean())
            N = float(B / (federation.label_counts > 0).sum(1).mean())
            state = {"mu1": self.mu1_code * (self.mu1_ratio or conversion(N, h))}
        if not self.mu2:
            return state
        clients = federation.num_clients
        number = math.ceil(self.submit * clients - 1e-9)  # 0.07 x 100 is a little more than 7 in floats
        drawn = federation.generators("submitters").choice(clients, number, replace=False)
        return super().setup(federation) | {"submitters": sorted(drawn.tolist())} | state

    def send(self, server: State, client: int, view: RoundView) -> State:
        """A converted mu1; the prototypes, once there are some, and whether this client is to submit its own."""
        weight = {"mu1": server["mu1"]} if self._converts else {}
        if not self.mu2:
            return weight
        flag = {"submit": client in server["submitters"]} if self.submit < 1 else {}
        return super().send(server, client, view) | flag | weight

    def begin(self, ctx: ClientContext) -> State:
        """The generator that picks Lite's samples, and the pairs of classes of Eq. 4 if all batches have the same."""
        local: State = {"lite": ctx.generators("lite")} if self.lite else {}
        if self.mu2 and "g" in ctx.received and self.inter_cj != "batch":
            g, C = ctx.received["g"], ctx.received["known"]
            C_k = C & to_device(torch.from_numpy(ctx.label_counts > 0), C.device)
            local["pairs"] = fast.pairs(C_k, C if self.inter_cj == "all" else C_k, g.dtype)
        return local

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Eq. 5: mu1 intra + mu2 inter, in float32 at least."""
        extra: Tensor | float = 0.0
        with float32(batch.z) as z:
            if mu1 := ctx.received.get("mu1", self._given):
                extra = mu1 * fast.intra_class(z, batch.y, self.eps, self.variant)
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
            C_b = C & torch.zeros_like(C).index_fill(0, y, True)
            pairs = fast.pairs(C_b, C_b, g.dtype)
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
