"""Parameters as one vector with a named layout.

A model is a contiguous vector ``w`` of length d; a :class:`Layout` says which slice belongs to which
tensor and to which group (``body``, ``head``, ``norm`` or ``other_norm``). Algorithms are written on whole vectors, as
the papers write them; layouts are compared strictly, and nothing is ever matched by its position in a list.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

BODY, HEAD, NORM, OTHER_NORM = "body", "head", "norm", "other_norm"
"""``norm`` are BatchNorm layers (by type, not by name), ``other_norm`` the other normalisation layers."""

CHUNK = 1 << 22
"""Numbers of many updates that are in float64 at a time (32 MiB)."""


class LayoutError(ValueError):
    """Two vectors that must describe the same tensors do not."""


@dataclass(frozen=True)
class TensorPlace:
    """One tensor inside a vector: ``vector[start:stop]`` has ``shape`` and belongs to ``group``.

    With ``channels_last`` a 4-D weight [O, I, h, w] is stored in the order O, h, w, I, which convolutions on such
    images read without copying.
    """

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    group: str
    channels_last: bool = False

    def view(self, vector: Tensor) -> Tensor:
        """This tensor as a view [shape] into ``vector`` [d]."""
        flat = vector[self.start : self.stop]
        if not self.channels_last:
            return flat.view(self.shape)
        out, channels, height, width = self.shape
        return flat.view(out, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Layout:
    """The names, places, shapes and groups of all tensors of one vector, in order and without gaps."""

    entries: tuple[TensorPlace, ...]

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, tuple[int, ...], str]], channels_last: bool = False) -> "Layout":
        """Lay out ``(name, shape, group)`` triples one after another; 4-D ones in channels-last order if asked."""
        entries: list[TensorPlace] = []
        place = 0
        for name, shape, group in tensors:
            size = math.prod(shape)
            last = channels_last and len(shape) == 4
            entries.append(TensorPlace(name, place, place + size, tuple(shape), group, last))
            place += size
        return cls(tuple(entries))

    @cached_property
    def size(self) -> int:
        """Length d of the vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def bounds(self) -> list[int]:
        """Where the tensors begin and end: 0 and the stop of each."""
        return [0, *(entry.stop for entry in self.entries)]

    def mask(self, *groups: str) -> Tensor:
        """Boolean vector [d], true where an entry belongs to one of ``groups``."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for entry in self.entries:
            if entry.group in groups:
                mask[entry.start : entry.stop] = True
        return mask

    def to_list(self) -> list[list[Any]]:
        """The entries as plain values, for a checkpoint."""
        return [list(astuple(entry)) for entry in self.entries]

    def require_same(self, stored: Sequence[Sequence[Any]], what: str) -> None:
        """Raise :class:`LayoutError`, naming the first difference, unless :meth:`to_list` wrote ``stored``."""
        for mine, theirs in zip_longest(self.to_list(), stored):
            if mine != theirs:
                raise LayoutError(f"{what}: got {theirs}; expected {mine}")


def _float64_blocks(updates: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """(columns, those columns of G [m, d] in float64), a few at a time: G is never held twice."""
    width = max(1, CHUNK // max(1, len(updates)))
    for start in range(0, updates.shape[1], width):
        part = slice(start, start + width)
        yield part, updates[:, part].double()


def gram(updates: Tensor) -> Tensor:
    """G G' [m, m] of G [m, d], in float64 on the CPU."""
    total = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for _, block in _float64_blocks(updates):
        total.addmm_(block, block.T)
    return total.cpu()


def combine(c: Tensor, updates: Tensor) -> Tensor:
    """sum_k c_k D_k [d] of updates [m, d] with coefficients c [m] in float64, in the type of the updates."""
    out = torch.empty_like(updates[0])
    weights = c.to(updates.device)
    for part, block in _float64_blocks(updates):
        out[part] = (weights @ block).to(out.dtype)
    return out
