"""Random generators: one for each (seed, purpose, round, client).

A new draw for one purpose does not change another, so all methods meet the same clients, batches and initial weights,
and results do not depend on the order or number of workers.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """An independent generator for ``purpose`` and, where they apply, round and client."""
    # The number of ids is part of the entropy: numpy pads it with zeros, so that [] and [0] would give the same draws.
    return np.random.default_rng([zlib.crc32(purpose.encode()), seed, len(ids), *ids])


def torch_seed(seed: int, purpose: str, *ids: int) -> int:
    """A seed for torch's own generator (weight initialisation, dropout, augmentation)."""
    return int(generator(seed, purpose, *ids).integers(2**63))


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed the generators that operations on ``device`` draw from."""
    # torch.manual_seed also seeds, or queues a call for, every other device: a tenth of the time of a small client.
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        module = torch.get_device_module(device)
        with module.device(device):  # not only the current one
            module.manual_seed(seed)


def rewinder(device: torch.device, generators: Sequence[np.random.Generator] = ()) -> Callable[[], None]:
    """A function that sets torch's generator of ``device``, and ``generators``, back to their present states."""
    if device.type == "cpu":
        put_back = partial(torch.set_rng_state, torch.get_rng_state())
    else:
        module = torch.get_device_module(device)
        put_back = partial(module.set_rng_state, module.get_rng_state(device), device)
    states = [rng.bit_generator.state for rng in generators]

    def rewind() -> None:
        put_back()
        for rng, state in zip(generators, states, strict=True):
            rng.bit_generator.state = state

    return rewind
