"""FedAdam, FedYogi, FedAdagrad: Adaptive Federated Optimization.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, ICLR 2021, https://arxiv.org/abs/2003.00295

Algorithm 2: the mean update Dbar is the gradient of an adaptive optimizer at the server,

    m <- beta1 m + (1 - beta1) Dbar,    v <- one of three,    w <- w + eta m / (sqrt(v) + tau),

coordinate by coordinate, without bias correction, from m_0 = 0 and v_0 = tau^2.

``variant: reference`` is Flower's: v starts at 0, FedAdam's rate carries Adam's bias correction, one step late, and eta
and tau are its default values. The paper tunes both for each task: FedAdagrad has its best values for images here, and
eta of the other two is ours.
"""

from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Federation, State
from methods.core.rules import ServerOptimizer, VariantRule, register


class Adaptive(VariantRule, ServerOptimizer):
    """What the three share.

    ``beta1``: momentum of the update; ``lr``: server rate eta; ``tau``: degree of adaptivity, also what keeps a
    coordinate without updates in its place; ``v0``: first value of v, tau squared or zero.
    """

    beta1: float = Field(ge=0, lt=1)
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    tau: float = Field(0.001, gt=0, allow_inf_nan=False)
    v0: Literal["tau2", "zero"] = "tau2"

    @abstractmethod
    def _second(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v [d] from the old one and Dbar^2 [d]."""

    def _rate(self, t: int) -> float:
        """Server rate of step t, from 1."""
        return self.lr

    def setup(self, federation: Federation) -> State:
        """m_0 = 0, v_0 = tau^2; t counts steps."""
        v = torch.full_like(federation.w, self.tau**2 if self.v0 == "tau2" else 0.0)
        return {"m": torch.zeros_like(federation.w), "v": v, "t": 0}

    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """m, v, then w <- w + eta m / (sqrt(v) + tau)."""
        t = state["t"] + 1
        m = self.beta1 * state["m"] + (1 - self.beta1) * dbar
        v = self._second(state["v"], dbar.square())
        return w + self._rate(t) * (m / (v.sqrt() + self.tau)), {"m": m, "v": v, "t": t}


@register("optimizer", "adam")
class Adam(Adaptive):
    """FedAdam: v <- beta2 v + (1 - beta2) Dbar^2.

    ``beta2``: decay of v; ``bias_correction``: the rate of step t is multiplied by
    sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)), as in Flower.
    """

    reference = {"lr": 0.1, "tau": 1e-9, "v0": "zero", "bias_correction": True}

    beta2: float = Field(ge=0, lt=1)
    bias_correction: bool = False

    def _second(self, v: Tensor, squared: Tensor) -> Tensor:
        """v [d]."""
        return self.beta2 * v + (1 - self.beta2) * squared

    def _rate(self, t: int) -> float:
        """eta, or Flower's."""
        if not self.bias_correction:
            return self.lr
        return self.lr * (1 - self.beta2 ** (t + 1)) ** 0.5 / (1 - self.beta1 ** (t + 1))


@register("optimizer", "yogi")
class Yogi(Adaptive):
    """FedYogi: v <- v - (1 - beta2) Dbar^2 sign(v - Dbar^2).

    ``beta2``: decay of v.
    """

    reference = {"lr": 0.01, "tau": 0.001, "v0": "zero"}

    beta2: float = Field(ge=0, lt=1)

    def _second(self, v: Tensor, squared: Tensor) -> Tensor:
        """v [d]."""
        return v - (1 - self.beta2) * squared * (v - squared).sign()


@register("optimizer", "adagrad")
class Adagrad(Adaptive):
    """FedAdagrad: v <- v + Dbar^2."""

    reference = {"lr": 0.1, "tau": 1e-9, "v0": "zero"}

    lr: float = Field(0.1, gt=0, allow_inf_nan=False)
    tau: float = Field(0.01, gt=0, allow_inf_nan=False)

    def _second(self, v: Tensor, squared: Tensor) -> Tensor:
        """v [d]."""
        return v + squared
