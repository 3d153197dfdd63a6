"""What a run costs: the time and the memory of a round."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmark.config.schema import RunConfig
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data


def time_round(run: RunConfig) -> tuple[float, int]:
    """Seconds of a round for each sample of the first client, and bytes that all clients keep between rounds."""
    torch.set_num_threads(run.runtime.threads)
    federation = build_run(run, load_data(run))
    state = federation.initial_state()

    def wait() -> float:
        place = federation.problem.images.device
        if place.type != "cpu":
            torch.get_device_module(place).synchronize(place)
        return time.perf_counter()

    # The first round also chooses kernels and allocates memory, so it is not timed.
    state, _ = federation.run_round(state)
    began = wait()
    state, _ = federation.run_round(state)
    seconds = (wait() - began) / len(federation.problem.clients[0])
    return seconds, sum(map(_bytes, state.clients.values()))


def _bytes(value: Any) -> int:
    """Memory of the tensors in nested mappings."""
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return int(getattr(value, "nbytes", 0))
