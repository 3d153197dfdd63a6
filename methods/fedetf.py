"""FedETF: No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with a Fixed Classifier.

Li, Shang, He, Lin, Wu, ICCV 2023, https://arxiv.org/abs/2303.10058

All clients share a classifier V [d, C] that never trains, a simplex ETF with a random U. A projection layer P, part of
the model, brings features to its space, and a temperature beta is learnt with it. The balanced feature loss weighs
classes by their number n_kc of samples at the client,

    mu = P z / ||P z||,    L = -log( n_ky^gamma exp(beta v_y' mu) / sum_c n_kc^gamma exp(beta v_c' mu) ).

The global model answers by f = beta V' mu. The fine-tuning of personal models (section 4.3) is left out.
``docs/fidelity.md`` describes the authors' code.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from methods.core.contexts import Batch, ClientContext, Generators, Loss, State
from methods.core.rules import ClientRule, register
from methods.shared.etf import SimplexETF
from methods.shared.linear import default_linear
from methods.shared.precision import float32


class ProjectedETF(nn.Module):
    """f = beta V' mu [B, C] of features z [B, h]."""

    def __init__(self, P: nn.Module, V: SimplexETF, beta: float) -> None:
        super().__init__()
        self.P, self.V = P, V
        self.beta = nn.Parameter(torch.tensor([beta]))

    def forward(self, z: Tensor) -> Tensor:
        """The logits, in float32 at least."""
        with float32(self.P(z)) as Pz:
            return self.beta * self.V(F.normalize(Pz, dim=1))


@register("client", "fedetf")
class FedETF(ClientRule):
    """Projection to a fixed simplex ETF, trained with the balanced feature loss.

    ``d``: outputs of P, or C where there are more classes; ``beta``: first temperature; ``gamma``: exponent of n_kc;
    ``absent``: a class without samples counts as ``one`` sample, or is left ``out`` of the sum over c.
    """

    d: int = Field(gt=0)
    beta: float = Field(gt=0, allow_inf_nan=False)
    gamma: float = Field(gt=0, allow_inf_nan=False)
    absent: Literal["one", "out"]

    def classifier(self, feature_dim: int, num_classes: int, generators: Generators) -> nn.Module:
        """P and V, drawn from the run's generators: the same for all clients."""
        d = max(self.d, num_classes)
        V = SimplexETF(d, num_classes, generators("fedetf/U"))
        return ProjectedETF(default_linear(feature_dim, d, generators("fedetf/P")), V, self.beta)

    def begin(self, ctx: ClientContext) -> State:
        """gamma log n_kc [C], once for all steps."""
        n = torch.from_numpy(ctx.label_counts).to(ctx.w, non_blocking=True)
        return {"prior": self.gamma * (n.clamp_min(1) if self.absent == "one" else n).log()}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """L in place of cross-entropy."""
        return Loss(F.cross_entropy(batch.logits + ctx.local["prior"], batch.y), ce_weight=0.0)
