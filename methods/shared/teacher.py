"""The global model as a teacher: its logits of the client's own samples, in evaluation mode."""

import torch
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, State

NO_CLASS = -1e30
"""A logit whose probability is 0, and whose difference to itself is 0, not NaN."""


def teacher(ctx: ClientContext) -> State:
    """The global model or, if images are not augmented, its logits of all samples, computed once."""
    model = ctx.frozen(ctx.w, ctx.buffers)
    if ctx.augmented:
        return {"model": model}
    return {"logits": torch.cat([model.logits(x) for x, _ in ctx.data.batches()])}


def teacher_logits(ctx: ClientContext, batch: Batch) -> Tensor:
    """The teacher's logits [B, C] of a mini-batch, from what ``teacher`` returned as part of ``ctx.local``."""
    if "logits" in ctx.local:
        logits: Tensor = ctx.local["logits"][batch.positions]
        return logits
    logits = ctx.local["model"].logits(batch.x)
    return logits
