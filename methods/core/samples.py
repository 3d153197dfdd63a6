"""Labelled images on the device, of a client or of a set to evaluate on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy ``values`` from the host to ``device``; on the CPU they are used in place.

    The host does not wait for a GPU, which copies from pinned memory.
    """
    return (values if device.type == "cpu" else values.pin_memory()).to(device, non_blocking=True)


@dataclass(frozen=True)
class TwoArrays:
    """The images ``first`` [n, c, H, W], followed by the rows ``rows`` [m] of ``others``, without a copy of either.

    A part of the training images can thus join the test set without using more memory.
    """

    first: Tensor
    others: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.first) + len(self.rows)

    def __getitem__(self, part: slice | Tensor) -> Tensor:
        if isinstance(part, slice):
            part = torch.arange(len(self), device=self.rows.device)[part]
        is_first = part < len(self.first)
        batch = self.first.new_empty((len(part), *self.first.shape[1:]))
        batch[is_first] = self.first[part[is_first]]
        batch[~is_first] = self.others[self.rows[part[~is_first] - len(self.first)]]
        return batch


@dataclass(frozen=True)
class Samples:
    """n labelled images. Images stay as they are stored (uint8), and several samples may share an array of them.

    Attributes:
        images: An array of images [N, c, H, W].
        y: Labels [n].
        transform: Makes the network's input from stored images.
        attributes: Attribute of each sample [n], where the data set has attributes.
        rows: Which of the images these are [n]; None: all, in order.
        batch_size: Most samples of a batch.
    """

    images: Tensor | TwoArrays
    y: Tensor
    transform: Callable[[Tensor], Tensor]
    attributes: Tensor | None = None
    rows: Tensor | None = None
    batch_size: int = 512

    def __len__(self) -> int:
        return len(self.y)

    def stored(self, part: slice | Tensor) -> Tensor:
        """The stored images of a part of the samples."""
        return self.images[part if self.rows is None else self.rows[part]]

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order, normalised, not augmented: (x [B, ...], y [B]). No samples: one empty batch."""
        for start in range(0, max(1, len(self)), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self.transform(self.stored(part)), self.y[part]

    def relabelled(self, labels: Tensor) -> "Samples":
        """The same samples with other labels [n]; those with a negative label are left out."""
        kept = (labels >= 0).nonzero().flatten()
        rows = kept if self.rows is None else self.rows[kept]
        attributes = None if self.attributes is None else self.attributes[kept]
        return replace(self, y=labels.to(self.y)[kept], rows=rows, attributes=attributes)
