"""What a round must know of its clients' values. It stays on the device, and is read once for all clients."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmark.engine.state import Diverged


class RoundValues:
    """The losses of a round's clients, and whether what they send is finite. Only `read` waits for the device."""

    def __init__(self, round: int, device: torch.device) -> None:
        """``round`` counts from 0."""
        self._round, self._device = round, device
        self._parts: list[tuple[int, Sequence[int] | None, Tensor]] = []

    def add_sent(self, client: int, *tensors: Tensor) -> None:
        """Note whether each of the tensors, which the client sends, is finite."""
        if tensors:
            # A sum is finite only if all its terms are, and needs no second tensor.
            sums = [tensor.sum().to(self._device, non_blocking=True) for tensor in tensors]
            self._parts.append((client, None, torch.isfinite(torch.stack(sums))))

    def add_losses(self, client: int, losses: Tensor, sizes: Sequence[int]) -> None:
        """Note the mean cross-entropy of each of the client's batches [steps], and the sizes of the batches."""
        self._parts.append((client, sizes, losses))

    def read(self) -> list[float]:
        """The mean training loss of each client, in the order in which they were noted.

        Raises:
            Diverged: The first values noted that are not finite, with their client.
        """
        if not self._parts:
            return []
        values = torch.cat([part for *_, part in self._parts]).cpu().numpy()
        means, stop = [], 0
        for client, sizes, part in self._parts:
            start, stop = stop, stop + len(part)
            if sizes is None and not values[start:stop].all():
                raise Diverged(self._round, f"update of client {client}")
            if sizes is not None:
                means.append(_mean_loss(values[start:stop], sizes))
                if not math.isfinite(means[-1]):
                    raise Diverged(self._round, f"training loss of client {client}")
        return means


def _mean_loss(losses: np.ndarray, sizes: Sequence[int]) -> float:
    """Mean of the batches' mean losses over the samples."""
    if not sizes:
        return 0.0
    with np.errstate(over="ignore"):  # a run that diverges
        total = np.cumsum(losses * np.asarray(sizes, losses.dtype))[-1]
    return float(total) / sum(sizes)
