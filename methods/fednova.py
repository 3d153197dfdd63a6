"""FedNova: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization.

Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020, https://arxiv.org/abs/2007.07481

Clients that take more steps count more in the mean, which moves its fixed point. Section 4: normalise every update by
a_k, the total weight of the client's gradients in it (tau_k for plain SGD), average, and go as far as tau_eff says,

    Dbar = tau_eff sum_k p_k D_k / a_k,    tau_eff = sum_k p_k a_k

(with a proximal term tau_eff = sum_k p_k tau_k, as in the authors' code). With equal a_k this is FedAvg. The engine
counts a_k (``Trained.step_norm``); momentum and FedProx's term are in it, corrections of other rules are not.

``variant: reference`` is FedDiverse's code (and Flower's baseline): the weights p_k / a_k are brought to sum 1, so that
tau_eff cancels and the step is too short where clients differ.
"""

from typing import Literal

import torch
from torch import Tensor

from methods.core.contexts import RoundView, State
from methods.core.rules import Aggregator, VariantRule, register
from methods.core.vectors import combine
from methods.fedavg import MeanDirection


@register("direction", "nova")
class Nova(VariantRule, Aggregator):
    """Mean of normalised updates.

    ``scale``: ``tau_eff``, or ``one``, weights that sum to 1.
    """

    for_sgd = True
    reference = {"scale": "one"}

    scale: Literal["tau_eff", "one"] = "tau_eff"

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], state) from the updates [m, d] and weights p [m]."""
        same = len(set(view.step_norms.tolist())) == 1 and not view.proximal
        if same:  # FedAvg to the last bit
            return MeanDirection().direction(updates, p, view, state)
        return combine(self._coefficients(p, view), updates), state

    def _coefficients(self, p: Tensor, view: RoundView) -> Tensor:
        """c [m] with Dbar = sum_k c_k D_k, float64. A client that took no step is left out, p renormalised."""
        a, tau = torch.as_tensor(view.step_norms).double(), torch.as_tensor(view.steps).double()
        worked = tau > 0
        if not worked.any():
            return torch.zeros_like(p)
        p = torch.where(worked, p, 0.0) * (p.sum() / p[worked].sum())
        inverse = torch.where(worked, p / a.clamp_min(1e-300), 0.0)
        if self.scale == "one":
            return inverse / inverse.sum()
        return (p * (tau if view.proximal else a)).sum() * inverse
