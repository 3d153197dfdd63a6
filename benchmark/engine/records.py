"""One recorded value. This module does not import torch, so that reading results is fast."""

from dataclasses import dataclass, fields
from typing import NamedTuple


class Record(NamedTuple):
    """One value in long form.

    ``round`` counts finished rounds (0 = before training); ``group`` is ``all``, ``class=c``, ``attribute=a`` or
    ``class=c,attribute=a``, ``client=k`` in the split ``participation``, and ``percentile=q`` of what clients have.
    """

    round: int
    split: str
    group: str
    metric: str
    value: float


@dataclass
class Cost:
    """The cost of a round on top of FedAvg's, which is local training, the model down, and an update up.

    ``scalars_up`` and ``scalars_down`` are numbers sent by and to clients beyond the model's own, ``forward`` samples
    passed through a model for rules and selections, ``trained`` samples of further gradients: of a selection's own
    training, and second ones of a step (``ClientRule.ascend``).
    """

    scalars_up: int = 0
    scalars_down: int = 0
    forward: int = 0
    trained: int = 0

    def records(self, round: int) -> list[Record]:
        costs = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return [Record(round, "cost", "all", name, float(value)) for name, value in costs if value]
