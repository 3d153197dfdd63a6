"""FedExP: Speeding up Federated Averaging via Extrapolation.

Jhunjhunwala, Wang, Joshi, ICLR 2023, https://arxiv.org/abs/2301.09604

Algorithm 1: the more the clients' updates differ, the further the server goes along their mean,

    eta_g = max(1, sum_k p_k ||D_k||^2 / (2 (||Dbar||^2 + eps))),    w <- w + eta_g Dbar.

The iterates swing around the optimum. So the mean of the last two is the model that is evaluated.
``docs/fidelity.md`` describes the authors' code (``variant: reference``).
"""

from collections.abc import Iterator

from pydantic import Field
from torch import Tensor
from torch.linalg import vector_norm

from methods.core.contexts import Federation, Predictor, RoundView, ServerView, State
from methods.core.rules import Aggregator, Post, Prediction, VariantRule, register
from methods.fedavg import MeanDirection


@register("direction", "extrapolate")
class Extrapolate(VariantRule, Aggregator):
    """eta_g times the mean of the updates.

    ``eps``: keeps eta_g small near the optimum (large: FedAvg); ``eps_times_m``: use m eps, for m participants.
    """

    reference = {"eps_times_m": True}

    eps: float = Field(gt=0, allow_inf_nan=False)
    eps_times_m: bool = False

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(eta_g Dbar [d], state) from the updates [m, d] and weights p [m]."""
        dbar, _ = MeanDirection().direction(updates, p, view, state)
        spread = p.to(updates.device) @ vector_norm(updates, dim=1).double().square()
        eps = self.eps * len(updates) if self.eps_times_m else self.eps
        eta_g = spread / (2 * (vector_norm(dbar).double().square() + eps))
        return dbar * eta_g.clamp(min=1), state


@register("post", "last_two")
class LastTwo(Post):
    """The last two iterates are kept."""

    def setup(self, federation: Federation) -> State:
        """Both are the initial model."""
        return {"before": federation.w, "last": federation.w}

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(w [d], state)."""
        return w, {"before": state["last"], "last": w}


@register("prediction", "last_two")
class MeanOfLastTwo(Prediction):
    """The mean of the last two iterates answers."""

    needs = {"post": "last_two"}

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor: logits of (w_t + w_{t-1})/2."""
        post = view.server["post"]
        yield view.model(w=(post["before"] + post["last"]) / 2).logits
