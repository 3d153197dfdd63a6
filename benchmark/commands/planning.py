"""What tables still need before they are made: runs, hours, disk space, data, weights and a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.commands.launching import plans_of
from benchmark.commands.options import LaunchOptions, launcher_settings
from benchmark.config.schema import Device, RunConfig, RuntimeConfig, declared
from benchmark.experiments import estimate
from benchmark.experiments.estimate import DataNeed, Rate, RunBlock
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import FileName, TableQuery
from benchmark.launch.local import cuda_devices
from benchmark.launch.settings import SlurmSettings
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.system import usable_cores

if TYPE_CHECKING:
    from benchmark.models.pretrained import WeightsFile


class PlanOptions(TableQuery):
    """Options of `plan`."""

    device: Device = declared(RuntimeConfig, "device")
    launcher: FileName = declared(LaunchOptions, "launcher")
    launcher_settings: Mapping[str, Any] = declared(LaunchOptions, "launcher_settings")


@dataclass(frozen=True)
class Needs:
    """What tables need.

    Attributes:
        runs: Table -> (its runs, those of them that have ended).
        blocks: The missing runs by table and configuration, each once.
        rates: (shape, ``cpu`` or ``cuda``) -> the rate, as far as one is known.
        device: ``cuda`` if the launcher carries the runs out on GPUs, else ``cpu``.
        places: Cores, or GPUs, that the launcher uses at the same time.
        request: What a task of a cluster asks for; empty for other launchers.
        uncounted: Missing runs on data of whose size nothing is known before they are there.
        planned: All runs.
        data: Their data sets.
        free_bytes: Free disk space of the results folder.
        gpu: The GPU of this machine, or ``none``.
    """

    runs: Mapping[str, tuple[int, int]]
    blocks: Sequence[RunBlock]
    rates: Mapping[tuple[Hashable, str], Rate]
    device: str
    places: int
    request: str
    uncounted: int
    planned: Sequence[RunConfig]
    data: Sequence[DataNeed]
    free_bytes: int
    gpu: str

    @cached_property
    def weights(self) -> Mapping[Path, WeightsFile]:
        """Files of pre-trained weights of all runs. The first use imports PyTorch, if there are any."""
        return estimate.weights_needed(self.planned)

    def hours(self, blocks: Sequence[RunBlock], device: str) -> float | None:
        """Hours on one core or one GPU, one run at a time; None if no rate is known."""
        times = [
            block.hours(self.rates[block.shape, device].seconds)
            for block in blocks
            if (block.shape, device) in self.rates
        ]
        return sum(times) if times or not blocks else None

    @property
    def wait(self) -> float | None:
        """Hours until all runs have ended: not less than the longest run."""
        total = self.hours(self.blocks, self.device)
        longest = [(self.hours([block], self.device) or 0.0) / block.runs for block in self.blocks]
        return None if total is None else max([total / self.places, *longest])


def needs_of(options: PlanOptions) -> Needs:
    """What the selected tables still need."""
    plans = plans_of(options, LaunchOptions(device=options.device))
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    runs = unique_runs([cells for _, cells in plans])
    index.refresh(runs)
    ended = {key for key in runs if index.has_ended(key)}
    seen, blocks, by_table = set(ended), list[RunBlock](), {}
    for spec, cells in plans:
        mine = unique_runs([cells])
        blocks += estimate.blocks(spec.name, [run for key, run in mine.items() if key not in seen])
        seen |= set(mine)
        by_table[spec.name] = len(mine), len(ended & set(mine))
    every, missing = list(runs.values()), [run for key, run in runs.items() if key not in ended]
    device, places, request = _places(options, missing)
    return Needs(
        by_table,
        blocks,
        estimate.rates(blocks, options.results / "rates.json"),
        device,
        places,
        request,
        len(seen - ended) - sum(block.runs for block in blocks),
        every,
        estimate.data_needs(every),
        shutil.disk_usage(options.results if options.results.exists() else ".").free,
        _gpu(),
    )


def _places(options: PlanOptions, runs: Sequence[RunConfig]) -> tuple[str, int, str]:
    """The kind of device of the launcher, how many of them it uses at the same time, and what a task asks for."""
    settings = launcher_settings(options.launcher, options.launcher_settings)
    if isinstance(settings, SlurmSettings):
        slurm = settings.asking_for(runs)
        tasks = max(1, min(slurm.max_parallel, -(-len(runs) // slurm.side_by_side)))
        device, places = ("cuda", slurm.gpus) if slurm.gpus else ("cpu", slurm.side_by_side)
        return device, tasks * places, slurm.request
    workers = 1 if settings.name == "inline" else settings.workers or usable_cores() // settings.threads
    gpus = 0 if options.device == "cpu" else cuda_devices()
    return ("cuda", gpus, "") if gpus else ("cpu", max(1, min(workers, len(runs))), "")


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:  # without importing torch
        return "none here"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use"
