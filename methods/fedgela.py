"""FedGELA: Federated Learning with Bilateral Curation for Partially Class-Disjoint Data.

Fan, Zhang, Yao, Han, Zhang, Wang, NeurIPS 2023, https://arxiv.org/abs/2405.18972

Globally, the classifier W is a simplex ETF that never trains, so no class is favoured and none collapses. Locally, it
is adapted to the client's classes, which get the room of those that are missing,

    f = W' z/||z||,    W = sqrt(E_W) V [h, C],    f_kc = Phi_kc f_c,    Phi_kc = C n_kc/n_k.

Client k trains with f_k. The global model answers by f: weighted by n_k, the mean of Phi_kc is 1 where all clients
together have as many samples of each class. ``docs/fidelity.md`` describes the authors' code.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from methods.core.contexts import Batch, ClientContext, Generators, Loss, State
from methods.core.rules import ClientRule, register
from methods.shared.etf import SimplexETF
from methods.shared.precision import float32


class FixedETF(nn.Module):
    """f = W' z/||z|| [B, C] of features z [B, h]."""

    def __init__(self, V: SimplexETF, E_W: float) -> None:
        super().__init__()
        self.V, self.scale = V, E_W**0.5

    def forward(self, z: Tensor) -> Tensor:
        """The logits, in float32 at least."""
        with float32(z) as z:
            return self.scale * self.V(F.normalize(z, dim=1))


@register("client", "fedgela")
class FedGELA(ClientRule):
    """A fixed simplex ETF, adapted to the classes of each client.

    ``E_W``: squared length of its columns.
    """

    E_W: float = Field(gt=0, allow_inf_nan=False)

    def classifier(self, feature_dim: int, num_classes: int, generators: Generators) -> nn.Module:
        """W."""
        return FixedETF(SimplexETF(feature_dim, num_classes, generators("fedgela/U")), self.E_W)

    def begin(self, ctx: ClientContext) -> State:
        """Phi_k [C], once for all steps."""
        n = torch.from_numpy(ctx.label_counts).to(ctx.w, non_blocking=True)
        return {"Phi": n * (ctx.num_classes / n.sum().clamp_min(1))}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Cross-entropy of f_k in place of that of f."""
        return Loss(F.cross_entropy(ctx.local["Phi"] * batch.logits, batch.y), ce_weight=0.0)
