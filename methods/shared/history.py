"""A slow moving average of the aggregated updates. FedLD's public code keeps one for FedLD and one for FedGH."""

import torch
from torch import Tensor

from methods.core.contexts import State

GAMMA = 0.99
"""Weight of the old history in the new one (code)."""


def no_history(w: Tensor) -> State:
    """The history before round 0."""
    return {"history": torch.zeros_like(w), "rounds": 0}


def remember(state: State, dbar: Tensor) -> State:
    """``state`` with the update of one more round, Dbar [d], in its history."""
    old, rounds = state["history"], state["rounds"]
    history = GAMMA * old + (1 - GAMMA) * dbar if rounds else dbar.clone()
    return state | {"history": history, "rounds": rounds + 1}
