"""What a federation is made of: its data, its budget, the state between two rounds, and the report of a round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from benchmark.engine.evaluation import ClientSamples
from benchmark.engine.records import Cost, Record
from methods.core.contexts import State
from methods.core.samples import Samples


class Diverged(Exception):
    """A client's update, payload or loss, or a metric contains NaN or infinity."""

    def __init__(self, round: int, what: str) -> None:
        """``round`` counts from 0."""
        super().__init__(f"round {round}: the {what} is not finite (NaN or infinity)")


class Interrupted(Exception):
    """The run was asked to stop. The state after the last complete round is unchanged."""


@dataclass(frozen=True)
class Problem:
    """The data of a run on the device.

    Attributes:
        images: Training images [N, c, H, W], uint8.
        labels: Their labels [N].
        attributes: Their attributes [N], or None.
        clients: Indices of the training images of each client.
        num_classes: C.
        num_attributes: A; 0 without attributes.
        transform: Makes the network's input from stored images.
        evaluation_sets: Sets to evaluate on, by split.
        client_sets: Samples by client, to measure accuracies on: ``validation`` of these clients, ``unseen`` of others.
        augment: Random changes of training images. None: none.
        augmented_transform: The transform of augmented images, which already have their final size. None: `transform`.
    """

    images: Tensor
    labels: Tensor
    attributes: Tensor | None
    clients: Sequence[np.ndarray]
    num_classes: int
    num_attributes: int
    transform: Callable[[Tensor], Tensor]
    evaluation_sets: Mapping[str, Samples]
    client_sets: Mapping[str, ClientSamples] = field(default_factory=dict)
    augment: Callable[[Tensor], Tensor] | None = None
    augmented_transform: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Schedule:
    """The number of rounds, the clients per round, and the clients' learning rate as a function of the round."""

    rounds: int
    clients_per_round: int
    lr: Callable[[int], float]
    first_round_full: bool = False


@dataclass(frozen=True)
class FederationState:
    """All that a checkpoint stores: the next round, the model, and the state of every rule.

    ``clients`` maps a client to {"rules": {rule: state}, "personal": values of its own groups, "buffers": ...}. It
    contains only clients that took part and have something to keep.
    """

    round: int
    w: Tensor
    buffers: Tensor
    direction: State
    optimizer: State
    post: State
    rules: dict[str, State]
    selection: State
    clients: dict[int, State]

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A state with ``change(tensor)`` in place of each of its tensors."""
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_tensors(item, change) for item in value]
    return change(value) if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class RoundReport:
    """The participants of a round, their weights, their mean training loss, and the cost on top of FedAvg's."""

    round: int
    clients: tuple[int, ...]
    weights: tuple[float, ...]
    train_loss: float
    cost: Cost

    def records(self, ids: Sequence[int]) -> list[Record]:
        """Records of the loss, the cost and, with partial participation, each participant's weight.

        ``ids``: the numbers of all clients in the partition.
        """
        done = self.round + 1
        records = [Record(done, "train", "all", "loss", self.train_loss), *self.cost.records(done)]
        if len(self.clients) < len(ids):
            records += [
                Record(done, "participation", f"client={ids[k]}", "weight", p)
                for k, p in zip(self.clients, self.weights, strict=True)
            ]
        return records
