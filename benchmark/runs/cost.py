"""What a run costs: the time and the memory of a round, and the operations of a network."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark.config.schema import NamedConfig, RunConfig
from benchmark.models.networks import build_net
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from datasets.core.base import Facts


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


def operations(model: NamedConfig, facts: Facts) -> int:
    """Operations of a network for one image, counted without computing them."""
    shape = (facts.channels, facts.size, facts.size)
    parameters = {key: value for key, value in model.parameters.items() if key not in ("pretrained", "start")}
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        build_net(model.name, facts.classes, shape, parameters, 0).eval()(torch.empty(1, *shape))
    return int(counter.get_total_flops())
