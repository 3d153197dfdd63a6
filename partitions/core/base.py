"""What a partition scheme gets (a `Population`), and what it must give.

A scheme cuts one training set into the clients of a federation. It sees labels, attributes and sources only. Indices
are positions in the `Population`, which may be a sub-sample of the data set.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from benchmark.errors import UserError

IntArray = NDArray[np.int64]
AnyGenerator = np.random.Generator | np.random.RandomState
"""The authors' lists come from numpy's legacy generator: a function that can give them takes either kind."""


class PartitionError(UserError):
    """A partition that cannot be made."""


@dataclass(frozen=True, eq=False)
class Population:
    """The training samples of one data set, as far as a partition scheme may know them.

    Attributes:
        labels: class of each sample, int64 [N], values 0 .. num_classes - 1.
        num_classes: number of classes Y, also those without any sample.
        attributes: spurious attribute (colour, background) of each sample, int64 [N], or None.
        num_attributes: number of attribute values A; 0 without attributes.
        sources: source (hospital, archive) of each sample, int64 [N], or None.
        num_sources: number of sources; 0 without sources.
        class_names, attribute_names, source_names: Y, A or num_sources names, or empty.
    """

    labels: IntArray
    num_classes: int
    attributes: IntArray | None = None
    num_attributes: int = 0
    sources: IntArray | None = None
    num_sources: int = 0
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    source_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def name_of(self, kind: Literal["class", "attribute", "source"], index: int) -> str:
        """Number and, if known, name of a class, an attribute or a source, for messages."""
        names = getattr(self, f"{kind}_names")
        return f"{kind} {index} ({names[index]})" if names else f"{kind} {index}"


class Partitioner(BaseModel):
    """A partition scheme with its parameters, which are the fields of the model (and the keys of its YAML file).

    A scheme is a subclass with `@partition("name")`, its fields, `draw`, `expected` if it has no field `clients`, and
    `check` for what can be refused before anything is drawn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    scheme: ClassVar[str] = ""
    """Its name, set by `@partition`."""
    files: ClassVar[tuple[str, ...]] = ()
    """Data files beside its module that its code reads. A run counts them as its code."""
    needs_attributes: ClassVar[bool] = False
    needs_sources: ClassVar[bool] = False

    @abstractmethod
    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """One array of sample indices per client, in any order; `split` calls it after the checks."""

    def check(self, population: Population) -> None:
        """Raise PartitionError for parameters that this population cannot fulfil."""

    def expected(self, samples: int, classes: int, sources: int) -> tuple[int, int]:
        """Number of clients, and of the samples that they get together (the mean if it is random), for `plan`."""
        clients = getattr(self, "clients", None)
        return clients if isinstance(clients, int) else max(1, sources), samples

    def repeats(self, population: Population) -> bool:
        """Whether a sample may be given out more than once (only an authors' variant does)."""
        return False

    def fail(self, message: str) -> PartitionError:
        """The error to raise: the message after the name of the scheme."""
        return PartitionError(f"partition {self.scheme}: {message}")

    def split(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """Cut the population into clients.

        Returns:
            K arrays int64 [n_k], each ascending and not empty. A sample is in at most one of them, once, unless
            `repeats`; it may be in none (`interaction`, `white_blood_cells`).

        Raises:
            PartitionError: The parameters do not fit the population, or a client would have no samples.
        """
        for needed, values, what, option in (
            (self.needs_attributes, population.attributes, "an attribute (such as the colour)", "attributes"),
            (self.needs_sources, population.sources, "the source (such as the hospital)", "sources"),
        ):
            if needed and values is None:
                raise self.fail(
                    f"needs {what} of each sample; this data set has none. Choose a data set with {option} "
                    "(dataset=...) or another scheme (partition=...)."
                )
        clients, _ = self.expected(len(population), population.num_classes, population.num_sources)
        if clients > len(population):
            raise self.fail(
                f"{clients} clients for {len(population)} samples: each client needs at least one. "
                "Ask for fewer clients or keep more samples (dataset.train_per_class)."
            )
        self.check(population)
        split = [np.sort(np.asarray(client, dtype=np.int64)) for client in self.draw(population, generator)]
        if len(split) != clients:
            raise self.fail(f"draw() gave {len(split)} clients; expected {clients}.")
        self._check_result(split, population)
        return split

    def _check_result(self, clients: list[IntArray], population: Population) -> None:
        for number, client in enumerate(clients):
            if not len(client):
                raise self.fail(
                    f"client {number} of {len(clients)} would have no sample. Ask for fewer clients or keep "
                    "more samples (dataset.train_per_class)."
                )
        given = np.concatenate(clients)
        if given.min() < 0 or given.max() >= len(population):
            raise self.fail(f"draw() gave index {given.max()} for {len(population)} samples.")
        if not self.repeats(population) and np.bincount(given).max() > 1:
            raise self.fail(f"draw() gave sample {np.bincount(given).argmax()} more than once.")


def indices_by_class(labels: IntArray, num_classes: int) -> list[IntArray]:
    """For each class 0 .. num_classes - 1, the ascending positions of its samples."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=num_classes))
    return np.split(order, ends[:-1])
