"""FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.

Li, Zhan, KDD 2021, https://doi.org/10.1145/3447548.3467254

At a client, every step pushes away the classes that it misses. The restricted softmax (Eq. 8) limits that: with O_k the
classes of client k, M_k those that it misses, and logits f, L = -log p_y with

    p_c = exp(alpha_c f_c) / sum over j of exp(alpha_j f_j),    alpha_c = 1 for c in O_k, alpha for c in M_k.

Predictions are those of the plain softmax. In the authors' code (``variant: reference``) a rare class is restricted
too: alpha_c = alpha + (1 - alpha) n_c / max n, with n_c the client's samples of class c.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from methods.core.contexts import Batch, ClientContext, Loss, State
from methods.core.rules import ClientRule, VariantRule, register


@register("client", "fedrs")
class FedRS(VariantRule, ClientRule):
    """Restricted softmax: scaled logits of the classes that the client misses.

    ``alpha``: their scale (1 is FedAvg). ``restricted``: ``missing`` classes alone, or every class by its ``share``.
    """

    reference: ClassVar[Mapping[str, Any]] = {"restricted": "share"}

    alpha: float = Field(ge=0, le=1)
    restricted: Literal["missing", "share"] = "missing"

    def begin(self, ctx: ClientContext) -> State:
        """alpha_c [C]."""
        n = torch.from_numpy(ctx.label_counts).to(ctx.w, non_blocking=True)
        share = n.sign() if self.restricted == "missing" else n / n.max()
        return {"alpha": self.alpha + (1 - self.alpha) * share}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Eq. 8 in place of cross-entropy."""
        if self.alpha == 1:
            return Loss(0.0)
        return Loss(F.cross_entropy(batch.logits * ctx.local["alpha"], batch.y), ce_weight=0.0)
