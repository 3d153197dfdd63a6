"""FedLD: Tackling Data Heterogeneity in Federated Learning via Loss Decomposition.

Zeng, Guo, Wang, Wang, Zhou, Qu, MICCAI 2024, https://arxiv.org/abs/2408.12300

Two independent parts, the 2 x 2 of Table 2: ``fedld_margin`` at the client (Eq. 3) keeps logits small, so that local
models do not lean on shortcuts; ``principal`` at the server (Eqs. 4-7) rebuilds every update from the top principal
directions of the round's updates. With rows D_k of G [m, d], e_z [m] and lam_z the eigenpairs of G G' in descending
order, v_z = G' e_z the principal gradients (Eq. 5) and vh_z = v_z / ||v_z||, Eqs. 6-7 come down to

    r_k = ||D_k|| sum_{l <= L} (lam_l / ||lam||) sign(<D_k, vh_l>) vh_l,        Dbar = sum_k p_k r_k:

a projection over its own length is a sign times an axis, so turning v_z towards the mean (Eq. 6) changes nothing.

Where the text leaves a choice, and where the authors' code (``variant: reference``) does something else:
- ||lam|| is printed for a scalar. ``l2top``, the Euclidean norm over the L kept eigenvalues, gives ||r_k|| = ||D_k||,
  which is what the length correction is for. The code divides by the sum of all eigenvalues, so its steps are shorter.
- L = 0.8 m is rounded down, to at least 1.
- The text flattens the gradient into one vector; the code works on each tensor by itself (and on BatchNorm's buffers,
  which are no part of w here: they are averaged in both variants).
- The text weighs clients by n_k / n; the code equally.
- The code takes the plain mean for a tensor whose history is zero, so in the first round. (It does so for tensors with
  one entry too, where Eq. 7 is the mean anyway.) The history does nothing else.
- The margin is the norm of each sample's logits; the code takes the softmax, and one norm over the whole batch.
- Not copied from the code in either variant, being accidents: a rate of 0 in the first round, training in evaluation
  mode, and that it fails under partial participation, with a single client and with updates of zero.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Federation, Loss, RoundView, State
from methods.core.errors import MethodError
from methods.core.registry import register
from methods.core.rules import Aggregator, ClientRule, Method
from methods.core.vectors import combine, gram

ZERO_EIGENVALUE = 1e-12
"""A direction whose eigenvalue is below this share of the first is 0/0 in Eq. 7 and dropped."""

ZERO_COSINE = 1e-12
"""A projection below this share of its update is rounding: it has no sign."""

GAMMA = 0.99
"""Weight of the old history in the new one (code)."""


def _choice(rule: Any, name: str, paper: str, reference: str) -> str:
    """The switch ``name`` of a rule; None means what its variant says."""
    chosen = getattr(rule, name)
    return chosen if chosen is not None else (reference if rule.variant == "reference" else paper)


# Client ----------------------------------------------------------------------------------------------------------


def margin(logits: Tensor, form: str, norm: str) -> Tensor:
    """log(1 + ||f||^2) of logits f [B, C] or of their softmax, a scalar.

    ``norm``: ``sample``, the mean over the rows, each with its own norm (Eq. 3), or ``batch``, one norm of the matrix.
    """
    f = F.softmax(logits, dim=1) if form == "softmax" else logits
    squares = f.square().sum(1)
    return torch.log1p(squares.sum() if norm == "batch" else squares).mean()


@register("client", "fedld_margin")
class Margin(ClientRule):
    """Margin control: a penalty on the size of the logits (Eq. 3).

    ``lam``: its weight lambda (0 is FedAvg). ``variant``: ``paper``, the logits of each sample; ``reference``, the
    softmax of the whole batch. Each half alone: ``form`` logits | softmax, ``norm`` sample | batch.
    """

    lam: float = Field(ge=0, allow_inf_nan=False)
    variant: Literal["paper", "reference"] = "paper"
    form: Literal["logits", "softmax"] | None = None
    norm: Literal["sample", "batch"] | None = None

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """L = mean over the batch of [CE_i + lambda log(1 + ||f_i||^2)], in float32 at least."""
        if self.lam == 0:
            return Loss(0.0)
        form, norm = _choice(self, "form", "logits", "softmax"), _choice(self, "norm", "sample", "batch")
        with torch.autocast(batch.logits.device.type, enabled=False):
            logits = batch.logits if batch.logits.dtype == torch.float64 else batch.logits.float()
            return Loss(self.lam * margin(logits, form, norm))


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
class Principal(Aggregator):
    """Updates rebuilt from the round's principal directions (Eqs. 4-7).

    ``proportion``: L / m, the share of directions that are kept. ``variant``: ``paper`` or ``reference``, the authors'
    code. Each difference alone (null: as the variant): ``scope`` whole | layer; ``normaliser`` l2top | sumall | sumtop
    | l2all | one (the printed lam_l / |lam_l|); ``client_weights`` rule (p_k of the weights rule) | uniform (1/m);
    ``first_round`` principal | mean (plain mean where the history is zero).
    """

    proportion: float = Field(gt=0, le=1)
    variant: Literal["paper", "reference"] = "paper"
    scope: Literal["whole", "layer"] | None = None
    normaliser: Literal["l2top", "sumall", "sumtop", "l2all", "one"] | None = None
    client_weights: Literal["rule", "uniform"] | None = None
    first_round: Literal["principal", "mean"] | None = None

    @property
    def _equal(self) -> bool:
        return _choice(self, "client_weights", "rule", "uniform") == "uniform"

    @property
    def _remembers(self) -> bool:
        return _choice(self, "first_round", "principal", "mean") == "mean"

    def check(self, method: Method) -> None:
        """Refuse a weights rule that would be asked and then ignored."""
        if self._equal and method.weights.key not in ("size", "uniform"):
            raise MethodError(
                f"method {method.name!r}: direction principal weighs clients equally (variant reference or "
                f"client_weights uniform) and would ignore the weights rule {method.weights.key!r}; set "
                "method.server.direction.client_weights=rule or method.server.weights.name=size"
            )

    def setup(self, federation: Federation) -> State:
        """Where the tensors begin and end in w, and an empty history, for those variants that need them."""
        state: State = {}
        if _choice(self, "scope", "whole", "layer") == "layer":
            state["bounds"] = torch.tensor(federation.layout.bounds)
        if self._remembers:
            state |= {"history": torch.zeros_like(federation.w), "rounds": 0}
        return state

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], new state) from the updates [m, d] and weights p [m]."""
        m, d = updates.shape
        p = torch.full_like(p, 1 / m) if self._equal else p
        bounds = state["bounds"].tolist() if "bounds" in state else [0, d]
        dbar = torch.empty_like(updates[0])
        for start, stop in pairwise(bounds):
            part = updates[:, start:stop]
            plain = self._remembers and not state["history"][start:stop].any()
            c = p if plain else self._coefficients(part, p)
            dbar[start:stop] = combine(c, part)
        if not self._remembers:
            return dbar, state
        old, rounds = state["history"], state["rounds"]
        history = GAMMA * old + (1 - GAMMA) * dbar if rounds else dbar.clone()
        return dbar, state | {"history": history, "rounds": rounds + 1}

    def _coefficients(self, updates: Tensor, p: Tensor) -> Tensor:
        """c [m] with Dbar = sum_k c_k D_k. A single update is its own principal direction: exactly c = p."""
        kept = max(
            1, math.floor(self.proportion * len(updates) + 1e-9)
        )  # 0.29 x 100 is a little less than 29 in floats
        return coefficients(gram(updates), p, kept, _choice(self, "normaliser", "l2top", "sumall"))
