"""FedLD: Tackling Data Heterogeneity in Federated Learning via Loss Decomposition.

Zeng, Guo, Wang, Wang, Zhou, Qu, MICCAI 2024, https://arxiv.org/abs/2408.12300

Two independent parts, the 2 x 2 of Table 2: ``fedld_margin`` at the client (Eq. 3) keeps logits small, so that local
models do not lean on shortcuts; ``principal`` at the server (Eqs. 4-7) rebuilds every update from the top principal
directions of the round's updates. With rows D_k of G [m, d], e_z [m] and lam_z the eigenpairs of G G' in descending
order, v_z = G' e_z the principal gradients (Eq. 5) and vh_z = v_z / ||v_z||, Eqs. 6-7 come down to

    r_k = ||D_k|| sum_{l <= L} (lam_l / ||lam||) sign(<D_k, vh_l>) vh_l,        Dbar = sum_k p_k r_k:

a projection over its own length is a sign times an axis, so turning v_z towards the mean (Eq. 6) changes nothing.

The text flattens the gradient into one vector, and weighs clients by n_k / n. ``docs/fidelity.md`` says
where the text leaves a choice, and where the authors' code (``variant: reference``) differs.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Federation, Loss, RoundView, State
from methods.core.rules import Aggregator, ClientRule, VariantRule, register
from methods.core.vectors import combine, gram
from methods.shared.history import no_history, remember
from methods.shared.precision import float32

ZERO_EIGENVALUE = 1e-12
"""A direction whose eigenvalue is below this share of the first is 0/0 in Eq. 7 and dropped."""

ZERO_COSINE = 1e-12
"""A projection below this share of its update is rounding: it has no sign."""

# Client ----------------------------------------------------------------------------------------------------------


def margin(logits: Tensor, form: str, norm: str) -> Tensor:
    """log(1 + ||f||^2) of logits f [B, C] or of their softmax, a scalar.

    ``norm``: ``sample``, the mean over the rows, each with its own norm (Eq. 3), or ``batch``, one norm of the matrix.
    """
    f = F.softmax(logits, dim=1) if form == "softmax" else logits
    squares = f.square().sum(1)
    return torch.log1p(squares.sum() if norm == "batch" else squares).mean()


@register("client", "fedld_margin")
class Margin(VariantRule, ClientRule):
    """Margin control: a penalty on the size of the logits (Eq. 3).

    ``lam``: its weight lambda (0 is FedAvg). ``variant``: ``paper``, the logits of each sample; ``reference``, the
    softmax of the whole batch. Each half alone: ``form`` logits | softmax, ``norm`` sample | batch.
    """

    reference = {"form": "softmax", "norm": "batch"}

    lam: float = Field(ge=0, allow_inf_nan=False)
    form: Literal["logits", "softmax"] = "logits"
    norm: Literal["sample", "batch"] = "sample"

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """L = mean over the batch of [CE_i + lambda log(1 + ||f_i||^2)], in float32 at least."""
        if self.lam == 0:
            return Loss(0.0)
        with float32(batch.logits) as logits:
            return Loss(self.lam * margin(logits, self.form, self.norm))


# Server ----------------------------------------------------------------------------------------------------------


def coefficients(products: Tensor, p: Tensor, kept: int, normaliser: str) -> Tensor:
    """c [m] with Dbar = sum_k c_k D_k, from G G' [m, m] and weights p [m], all in float64.

    Every r_k is a combination of the v_z, and these of the updates, so nothing longer than m is needed:
    <D_k, vh_l> = (G G' e_l)_k / sqrt(lam_l) and vh_l = G' e_l / sqrt(lam_l), because ||v_l||^2 = lam_l.
    """
    lengths = products.diagonal().sqrt()  # ||D_k||
    lam, e = torch.linalg.eigh(products)  # ascending; columns are eigenvectors
    lam, e = lam.flip(0).clamp_min(0), e.flip(1)
    every, lam, e = lam, lam[:kept], e[:, :kept]
    there = lam > ZERO_EIGENVALUE * every[0]
    lam, e = lam[there], e[:, there]
    if not len(lam):
        return torch.zeros_like(p)
    norm = {
        "l2top": lam.norm(),
        "l2all": every.norm(),
        "sumtop": lam.sum(),
        "sumall": every.sum(),
        "one": lam,
    }[normaliser]
    projections = products @ e / lam.sqrt()  # <D_k, vh_l> [m, L]
    signs = projections.sign() * (projections.abs() > ZERO_COSINE * lengths[:, None])
    along = (p * lengths) @ signs * (lam / norm)  # Dbar along each axis vh_l [L]
    return e @ (along / lam.sqrt())


@register("direction", "principal")
class Principal(VariantRule, Aggregator):
    """Updates rebuilt from the round's principal directions (Eqs. 4-7).

    ``proportion``: L / m, the share of directions that are kept. ``scope`` whole | layer; ``normaliser`` l2top | sumall
    | sumtop | l2all | one (the printed lam_l / |lam_l|); ``client_weights`` rule (p_k of the weights rule) | uniform
    (1/m); ``first_round`` principal | mean (plain mean where the history is zero).
    """

    reference = {
        "scope": "layer",
        "normaliser": "sumall",
        "client_weights": "uniform",
        "first_round": "mean",
    }

    proportion: float = Field(gt=0, le=1)
    scope: Literal["whole", "layer"] = "whole"
    normaliser: Literal["l2top", "sumall", "sumtop", "l2all", "one"] = "l2top"
    client_weights: Literal["rule", "uniform"] = "rule"
    first_round: Literal["principal", "mean"] = "principal"

    @property
    def needs(self) -> Mapping[str, str]:  # type: ignore[override]
        """Clients weigh the same with ``uniform``, so another weights rule would be ignored."""
        return {"weights": "size|uniform"} if self.client_weights == "uniform" else {}

    def setup(self, federation: Federation) -> State:
        """Where the tensors begin and end in w, and an empty history, for those variants that need them."""
        state: State = {}
        if self.scope == "layer":
            state["bounds"] = torch.tensor(federation.layout.bounds)
        return state | no_history(federation.w) if self.first_round == "mean" else state

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], new state) from the updates [m, d] and weights p [m]."""
        m, d = updates.shape
        p = torch.full_like(p, 1 / m) if self.client_weights == "uniform" else p
        bounds = state["bounds"].tolist() if "bounds" in state else [0, d]
        dbar = torch.empty_like(updates[0])
        for start, stop in pairwise(bounds):
            part = updates[:, start:stop]
            plain = "history" in state and not state["history"][start:stop].any()
            dbar[start:stop] = combine(p if plain else self._coefficients(part, p), part)
        return dbar, remember(state, dbar) if "history" in state else state

    def _coefficients(self, updates: Tensor, p: Tensor) -> Tensor:
        """c [m] with Dbar = sum_k c_k D_k. A single update is its own principal direction: exactly c = p."""
        # 0.29 x 100 is a little less than 29 in floating point.
        kept = max(1, math.floor(self.proportion * len(updates) + 1e-9))
        return coefficients(gram(updates), p, kept, self.normaliser)
