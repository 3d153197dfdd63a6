"""Losses that need more than half precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def float32(tensor: Tensor) -> Iterator[Tensor]:
    """Switch mixed precision off inside a block; the value is ``tensor``, in float32 at least."""
    with torch.autocast(tensor.device.type, enabled=False):
        yield tensor if tensor.dtype == torch.float64 else tensor.float()
