"""Partition by interaction matrices: how many samples of each (class, attribute) each client gets.

FedDiverse (2025), appendix A: tables 5 (pooled matrices) and 6 (the client types below). Rows are classes,
columns attributes. Drawing rule: one permutation of the samples of each (class, attribute), cut into
consecutive slices in client order; classes outside, attributes inside.
"""

from typing import ClassVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from benchmark.errors import wrong
from partitions.core.base import IntArray, Partitioner, Population
from partitions.core.registry import partition

Matrix = tuple[tuple[int, ...], ...]
Types = tuple[tuple[int, Matrix], ...]


def _six_types(high: int, low: int, counts: tuple[int, int, int, int, int, int]) -> Types:
    """The six binary types of table 6: two class imbalanced, two attribute imbalanced, two correlated."""
    both, neither, first, second = (high, high), (low, low), (high, low), (low, high)
    matrices: tuple[Matrix, ...] = (
        *((both, neither), (neither, both)),
        *((first, first), (second, second)),
        *((first, second), (second, first)),
    )
    return tuple(zip(counts, matrices, strict=True))


def _four_breeds(first: tuple[int, int], last: tuple[int, int]) -> Matrix:
    """A matrix whose rows 0, 1 are `first` and rows 2, 3 `last`."""
    return (first, first, last, last)


_GSC = _six_types(90, 10, (2, 2, 2, 2, 15, 1))

DISTRIBUTIONS: dict[str, Types] = {
    "spawrious_gsc": _GSC,
    "spawrious_gci": _six_types(90, 10, (15, 1, 2, 2, 2, 2)),
    "spawrious_gai": (
        (1, ((120, 5), (20, 10))),
        (1, ((120, 40), (5, 10))),
        (2, ((170, 5), (5, 5))),
        (2, ((5, 5), (170, 5))),
        (2, ((10, 30), (120, 10))),
        (2, ((80, 80), (20, 2))),
        (14, ((80, 15), (90, 2))),
        (1, ((110, 5), (85, 8))),
    ),
    "waterbirds_dist": (
        (1, ((23, 23), (10, 110))),
        (1, ((110, 23), (10, 23))),
        (1, ((89, 39), (1, 29))),
        (1, ((29, 39), (1, 89))),
        (1, ((81, 35), (9, 31))),
        (9, ((126, 1), (1, 31))),
        (16, ((127, 1), (1, 31))),
    ),
    "spawrious4": (
        (2, _four_breeds((20, 20), (5, 5))),
        (2, _four_breeds((5, 5), (20, 20))),
        (2, _four_breeds((20, 5), (20, 5))),
        (2, _four_breeds((5, 20), (5, 20))),
        (1, _four_breeds((5, 20), (20, 5))),
        (7, _four_breeds((119, 5), (5, 119))),
        (9, _four_breeds((118, 5), (5, 118))),
    ),
    "cmnist_gsc": _GSC,
    # A block of 25 clients, four times: the order of the authors' code (table 6 adds up the blocks).
    "spawrious_gci100": _six_types(68, 10, (16, 1, 2, 2, 2, 2)) * 4,
}


class ClientType(BaseModel):
    """A number of clients with the same matrix of samples per class (rows) and attribute (columns), before scaling."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: PositiveInt = 1
    matrix: tuple[tuple[NonNegativeInt, ...], ...]

    @field_validator("matrix")
    @classmethod
    def _rectangular(cls, matrix: Matrix) -> Matrix:
        if not matrix or not matrix[0] or len({len(row) for row in matrix}) != 1:
            raise ValueError("expected rows of the same length, one per class, one number per attribute")
        if not any(map(any, matrix)):
            raise ValueError("got zeros only; expected at least one sample")
        return matrix


@partition("interaction")
class Interaction(Partitioner):
    """Give each client the numbers of a class x attribute matrix (FedDiverse, tables 5 and 6).

    Attributes:
        distribution: a name of `DISTRIBUTIONS`, or null if `clients` is given.
        clients: list of {count, matrix}, or null if `distribution` is given.
        scale: factor on every count, rounded half up, for data smaller than the paper's.
        scale_floor: what a cell that is not zero keeps at least: 1, or 0 to let small cells vanish.
    """

    needs_attributes: ClassVar[bool] = True

    distribution: str | None = None
    clients: tuple[ClientType, ...] | None = Field(default=None, min_length=1)
    scale: float = Field(default=1.0, gt=0)
    scale_floor: int = Field(default=1, ge=0, le=1)

    @field_validator("distribution")
    @classmethod
    def _known(cls, distribution: str | None) -> str | None:
        if distribution is not None and distribution not in DISTRIBUTIONS:
            expected = f"one of {', '.join(DISTRIBUTIONS)}"
            raise ValueError(wrong("partition.distribution", distribution, expected, known=DISTRIBUTIONS))
        return distribution

    @model_validator(mode="after")
    def _consistent(self) -> "Interaction":
        if (self.distribution is None) == (self.clients is None):
            raise ValueError("expected either distribution (a name) or clients (a list of {count, matrix})")
        shapes = {(len(kind.matrix), len(kind.matrix[0])) for kind in self.clients or ()}
        if len(shapes) > 1:
            raise ValueError(
                f"clients: got matrices of the shapes {sorted(shapes)}; expected the same shape for all"
            )
        return self

    def matrices(self) -> IntArray:
        """Counts of all clients after scaling, int64 [K, Y, A]."""
        if self.distribution is not None:
            types = DISTRIBUTIONS[self.distribution]
        else:
            types = tuple((kind.count, kind.matrix) for kind in self.clients or ())
        whole = np.concatenate([np.tile(np.array(matrix), (count, 1, 1)) for count, matrix in types])
        # The inner rounding makes 90 x 0.35 = 31.499999999999996 the 31.5 that is meant.
        rounded = np.floor(np.round(whole * self.scale, 9) + 0.5).astype(np.int64)
        return np.where(whole > 0, np.maximum(rounded, self.scale_floor), 0)

    def expected(self, samples: int, classes: int, sources: int) -> tuple[int, int]:
        """Number of clients and sum of the matrices."""
        matrices = self.matrices()
        return len(matrices), int(matrices.sum())

    def check(self, population: Population) -> None:
        """Refuse matrices of another shape, or with more samples than exist."""
        matrices = self.matrices()
        shape = (population.num_classes, population.num_attributes)
        if matrices.shape[1:] != shape:
            raise self.fail(
                f"its matrices are for {matrices.shape[1]} classes x {matrices.shape[2]} attributes, the data have "
                f"{shape[0]} x {shape[1]}. Change partition.distribution (or partition.clients) or the data set."
            )
        assert population.attributes is not None  # needs_attributes
        asked, available = matrices.sum(axis=0), np.zeros(shape, dtype=np.int64)
        np.add.at(available, (population.labels, population.attributes), 1)
        for label, attribute in np.argwhere(asked > available)[:1].tolist():
            raise self.fail(
                f"{population.name_of('class', label)} with {population.name_of('attribute', attribute)}: "
                f"{asked[label, attribute]} samples asked, {available[label, attribute]} available. Lower "
                f"partition.scale ({self.scale:g}) or keep more samples (dataset.train_per_class)."
            )

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The clients: consecutive slices of one permutation per (class, attribute)."""
        matrices = self.matrices()
        shares: list[list[IntArray]] = [[] for _ in matrices]
        for label in range(population.num_classes):
            for attribute in range(population.num_attributes):
                cell = np.flatnonzero((population.labels == label) & (population.attributes == attribute))
                shuffled = generator.permutation(cell)
                ends = np.cumsum(matrices[:, label, attribute])
                for client, part in enumerate(np.split(shuffled, ends)[:-1]):
                    shares[client].append(part)
        return [np.concatenate(share) for share in shares]


@partition("pooled_interaction")
class PooledInteraction(Interaction):
    """All clients of `interaction` as a single one: centralised training on the same data (FedDiverse, table 5)."""

    def matrices(self) -> IntArray:
        """Pooled counts after scaling, int64 [1, Y, A]."""
        return super().matrices().sum(axis=0, keepdims=True)
