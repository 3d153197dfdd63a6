"""FedMR: Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping.

Fan, Yao, Zhang, Lyu, Zhang, Wang, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7

Eq. 5: L = CE + mu1 intra + mu2 inter. The intra-class loss (Eq. 3) decorrelates the features within each class of the
mini-batch, so that they do not collapse; the inter-class loss (Eq. 4) asks of each sample to lie closer to the global
prototype of its own class than to any other, so that it does not take the room of classes that the client lacks.
Prototypes g_c are class means of features, taken after local training and averaged at the server (Algorithm 1).

Where the text leaves a choice:
- Eq. 4 sums c_j over the client's own classes, but prototypes are introduced as the support of the missing ones:
  ``inter_cj`` = ``all`` takes every class with a prototype, ``batch`` and ``client`` only those present there.
- Eq. 3 in a mini-batch: classes with one sample have no M_c and are not counted.
- The public code has the intra-class loss only, in another form: ``variant: reference`` with mu2 = 0, mu1 = 0.01 and
  the server weights ``batches``. Its weight mu cannot be carried over to the paper's form.
"""

import math
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from benchmark.errors import wrong
from methods.core.contexts import Batch, ClientContext, Federation, Loss, RoundView, State, Trained
from methods.core.rules import MethodError, VariantRule, Weights, register
from methods.shared.precision import float32
from methods.shared.prototypes import Prototypes


def intra_class(z: Tensor, y: Tensor, eps: float, variant: Literal["paper", "reference"] = "paper") -> Tensor:
    """Eq. 3 for features z [B, h] with labels y [B]: a scalar, 0 if no class has two samples.

    Paper: zh = (z - mean_c) / sqrt(var_c + eps) with the population variance, M_c = zh' zh / (N_c - 1), and the mean
    of ||M_c||_F^2 over the classes with N_c >= 2. Reference: unbiased variance, A_c = zh' zh, the mean of its squared
    off-diagonal entries, summed over these classes and divided by their number of samples.
    """
    return _IntraClass.apply(z, y, eps, variant == "paper")


class _IntraClass(torch.autograd.Function):
    """`intra_class` with its gradient in closed form: half the kernels of autograd.

    With G = dL/dzh, and means over the samples of a class, dL/dz is (G - zh mean(G zh)) / sqrt(var_c + eps) less its
    mean, as in BatchNorm. For the unbiased variance mean(G zh) is divided by N_c - 1 too.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, eps: float, paper: bool) -> Tensor:
        """The loss; its gradient is kept for `backward`."""
        same = y[:, None] == y  # [B, B]: all sums over a class are products with it
        count = same.sum(1, keepdim=True, dtype=z.dtype)  # N_c of each sample's class [B, 1]
        average = same / count
        spread = average if paper else same / (count - 1).clamp_min(1)
        centred = z - average @ z
        # A feature without variance is 0 after standardising, also for eps = 0.
        scale = (spread @ centred.square() + max(eps, torch.finfo(z.dtype).tiny)).rsqrt()
        zh = centred * scale
        if paper:
            # |C_b|: every class adds N_c times 1/N_c, or 0 for N_c = 1.
            classes = average.diagonal().frac().sum()
            weight = same / ((count - 1).square() * classes).clamp_min(1)
        else:
            h, samples = z.shape[1], (count > 1).sum(dtype=z.dtype)
            weight = same / (samples * (h * (h - 1))).clamp_min(1)
        # ||zh' zh||_F = ||zh zh'||_F: one Gram matrix of the samples holds every class, whatever h is.
        gram = zh @ zh.T
        weighted = gram * weight
        loss = torch.dot(weighted.flatten(), gram.flatten())
        G = weighted @ zh  # a quarter of dL/dzh
        if not paper:  # without the diagonal of A_c
            squares = zh.square()
            diagonal = weight @ squares
            loss = loss - torch.dot(diagonal.flatten(), squares.flatten())
            G = G - diagonal * zh
        gradient = (G - zh * (spread @ (G * zh))) * (4 * scale)
        ctx.save_for_backward(torch.addmm(gradient, average, gradient, alpha=-1))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient with respect to z."""
        (gradient,) = ctx.saved_tensors
        return above * gradient, None, None, None


def inter_class(z: Tensor, y: Tensor, g: Tensor, share: Tensor, nearness: Tensor) -> Tensor:
    """Eq. 4 for features z [B, h] with labels y [B] and prototypes g [C, h]; the others are the `pairs` of P.

    1/(|P| (|P| - 1)) times the sum over classes c_i of the batch and c_j != c_i, both in P, of the mean over the
    samples of c_i of max(||z - g_ci|| - ||z - g_cj||, 0). A scalar; 0 for |P| < 2. The gradient of a norm at 0 is 0.
    """
    away = torch.cdist(z, g, compute_mode="donot_use_mm_for_euclid_dist")  # [B, C]
    N = (y[:, None] == torch.arange(len(g), device=y.device)).sum(0)
    # torch's loss is weight[c_i]/C times the sum over c_j != c_i of max(0, s_cj - s_ci).
    s = torch.sub(nearness, away, alpha=len(g))
    return F.multi_margin_loss(s, y, margin=0, weight=share / N, reduction="sum")


def pairs(among: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """For P as a mask [C]: 1/(|P| (|P| - 1)) for its classes, else 0; and 0 for them, else less than any distance."""
    size = among.sum(dtype=dtype)
    return among / (size * (size - 1)).clamp_min(1), among.log().clamp_min(-1e30)


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
        """The generator that picks Lite's samples of each batch, and the pairs of Eq. 4 if all batches have one P."""
        local: State = {"lite": ctx.generators("lite")} if self.lite else {}
        if self.mu2 and "g" in ctx.received and self.inter_cj != "batch":
            g, known = ctx.received["g"], ctx.received["known"]
            if self.inter_cj == "client":
                known = known & torch.from_numpy(ctx.label_counts > 0).to(known.device)
            local["pairs"] = pairs(known, g.dtype)
        return local

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Eq. 5: mu1 intra + mu2 inter, in float32 at least."""
        extra: Tensor | float = 0.0
        with float32(batch.z) as z:
            if self.mu1:
                extra = self.mu1 * intra_class(z, batch.y, self.eps, self.variant)
            if self.mu2 and "g" in ctx.received:
                extra = self.mu2 * self._inter(ctx, z, batch.y) + extra
        return Loss(extra)

    def _inter(self, ctx: ClientContext, z: Tensor, y: Tensor) -> Tensor:
        if self.lite is not None and self.lite < len(y):
            rng: np.random.Generator = ctx.local["lite"]
            picked = torch.from_numpy(rng.choice(len(y), self.lite, replace=False))
            picked = picked.to(y.device, non_blocking=True)
            z, y = z[picked], y[picked]
        g, known = ctx.received["g"], ctx.received["known"]
        if self.inter_cj == "batch":
            found = pairs(known & torch.zeros_like(known).index_fill(0, y, True), g.dtype)
        else:
            found = ctx.local["pairs"]
        return inter_class(z, y, g, *found)

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
