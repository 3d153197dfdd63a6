"""MOON: Model-Contrastive Federated Learning.

Li, He, Song, CVPR 2021, https://arxiv.org/abs/2103.16257

Eq. 3: L = CE + mu l_con with, s the cosine,

    l_con = -log( exp(s(z, z_glob)/T) / (exp(s(z, z_glob)/T) + exp(s(z, z_prev)/T)) ),

z the features of a sample under the local model, z_glob under the global one w, z_prev under the client's own last one.
The authors put a projection head of two layers between body and classifier and contrast its output; FedMR compares all
methods on one model without it, which is the default here (``model.projection: 256`` adds it).
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, FrozenModel, Loss, State, Trained
from methods.core.rules import ClientRule, register
from methods.shared import fast
from methods.shared.precision import float32


def contrast(z: Tensor, z_glob: Tensor, z_prev: Tensor, T: float) -> Tensor:
    """Mean of l_con over the rows of z, z_glob, z_prev [B, h]. The rule computes it with ``methods/shared/fast.py``."""
    near = torch.exp(F.cosine_similarity(z, z_glob) / T)
    far = torch.exp(F.cosine_similarity(z, z_prev) / T)
    return -torch.log(near / (near + far)).mean()


@register("client", "moon")
class Moon(ClientRule):
    """Features close to the global model's and away from the client's own last model's.

    ``mu``: weight of the contrast (0 is FedAvg); ``T``: temperature.
    """

    equal_layouts = True

    mu: float = Field(ge=0, allow_inf_nan=False)
    T: float = Field(gt=0, allow_inf_nan=False)

    def begin(self, ctx: ClientContext) -> State:
        """The two other models or, if images are not augmented, their features of all samples, computed once.

        At the first participation both are w: the contrast is constant, and nothing is computed.
        """
        if self.mu == 0 or not ctx.state:
            return {}
        models = [ctx.frozen(ctx.w, ctx.buffers), ctx.frozen(ctx.state["w"], ctx.state["buffers"])]
        if ctx.augmented:
            return {"models": models}
        return {"features": [torch.cat([m.features(x) for x, _ in ctx.data.batches()]) for m in models]}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """mu l_con, in float32 at least."""
        if not ctx.local:
            return Loss(0.0)
        if "features" in ctx.local:
            others = [z[batch.positions] for z in ctx.local["features"]]
        else:
            models: list[FrozenModel] = ctx.local["models"]
            others = [model.features(batch.x) for model in models]
        with float32(batch.z) as z:
            return Loss(self.mu * fast.contrast(z, others[0].to(z), others[1].to(z), self.T))

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """The model of this round is the previous one of the next."""
        return ({"w": trained.w, "buffers": trained.buffers} if self.mu else {}), {}
