"""What tables still need before they are made: runs, hours, disk space, data, weights and a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from benchmark.commands.launching import plans_of
from benchmark.config.schema import Device, RuntimeConfig, declared
from benchmark.experiments import estimate
from benchmark.experiments.estimate import DataNeed, Rate, RunBlock
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

if TYPE_CHECKING:
    from benchmark.models.pretrained import WeightsFile


class PlanOptions(TableQuery):
    """Options of `plan`."""

    timing: Literal["on", "again", "off"] = Field(
        "on",
        description="whether a round of each kind of run is measured on this device, if it has not been yet",
    )
    device: Device = declared(RuntimeConfig, "device")


@dataclass(frozen=True)
class Needs:
    """What tables need.

    Attributes:
        runs: Table -> (its runs, those of them that have ended).
        blocks: The missing runs by table and configuration, each once.
        rates: The rate of their shapes on this device, as far as it was measured.
        uncounted: Missing runs on data of whose size nothing is known before they are there.
        data: The data sets of all runs.
        weights: Files of pre-trained weights of all runs.
        free_bytes: Free disk space of the results folder.
        gpu: The GPU of this machine, or ``none``.
    """

    runs: Mapping[str, tuple[int, int]]
    blocks: Sequence[RunBlock]
    rates: Mapping[Hashable, Rate]
    uncounted: int
    data: Sequence[DataNeed]
    weights: Mapping[Path, WeightsFile]
    free_bytes: int
    gpu: str

    def hours(self, blocks: Sequence[RunBlock] | None = None) -> float | None:
        """Hours of these blocks, of all if left out, one run at a time; None if no rate of theirs is known."""
        blocks = self.blocks if blocks is None else blocks
        times = [
            block.hours(self.rates[block.shape].seconds) for block in blocks if block.shape in self.rates
        ]
        return sum(times) if times or not blocks else None


def needs_of(options: PlanOptions) -> Needs:
    """What the selected tables still need."""
    plans = plans_of(options)
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
    rates: Mapping[Hashable, Rate] = {}
    if options.timing != "off":
        rates = estimate.rates(
            blocks, options.device, options.results / "rates.json", options.timing == "again"
        )
    every = list(runs.values())
    return Needs(
        by_table,
        blocks,
        rates,
        len(seen - ended) - sum(block.runs for block in blocks),
        estimate.data_needs(every),
        estimate.weights_needed(every),
        shutil.disk_usage(options.results if options.results.exists() else ".").free,
        _gpu(),
    )


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:  # without importing torch
        return "none here"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use"
