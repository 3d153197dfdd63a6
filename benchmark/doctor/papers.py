"""What Table 1 of each paper needs of this machine: hours, data sets and weights."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.config.schema import RunConfig
from benchmark.doctor import CheckResult, bad
from benchmark.experiments import estimate
from benchmark.experiments.estimate import RunBlock
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery, find_tables, plan_tables

Runs = Mapping[str, Sequence[RunConfig]]
"""Paper -> the runs of its Table 1."""


def runs_of(query: TableQuery, data: Path | None) -> Runs:
    """The runs of the selected tables. `NoTable` if there are none."""
    plans = plan_tables(find_tables(query), query, {"paths": {"data": None if data is None else str(data)}})
    return {spec.paper: list(unique_runs([cells]).values()) for spec, cells in plans}


def speed(runs: Runs, preset: str, device: str) -> Sequence[CheckResult]:
    """Samples per second of the network of median cost, measured, and hours of each paper, scaled from it."""
    blocks = {paper: estimate.blocks(paper, runs_of_paper) for paper, runs_of_paper in runs.items()}
    networks = {block.network: block for runs_of_paper in blocks.values() for block in runs_of_paper}
    costs = {network: operations(block) for network, block in networks.items()}
    block = sorted(networks.values(), key=lambda block: costs[block.network])[len(networks) // 2]
    pace = estimate.timed(block, device).seconds
    hours = {
        paper: sum(part.hours(pace * costs[part.network] / costs[block.network]) for part in parts)
        for paper, parts in blocks.items()
    }
    shown = ", ".join(f"{paper} {estimate.in_words(time)}" for paper, time in hours.items())
    measured = (
        f"{1 / pace:,.0f} samples/s ({block.run.model.name}, {block.facts.size} px, a short training, "
        f"load of the machine {os.getloadavg()[0]:.1f})"
    )
    rough = f"Table 1, preset {preset}, one run at a time; rough, by operations of the networks (`plan` times each)"
    long = max(hours.values()) > estimate.YEAR
    remedy = "That needs GPUs: device=cuda, or launcher=slurm" if long else ""
    return [
        CheckResult("speed", "ok", measured),
        CheckResult("hours", "note" if long else "ok", f"{shown}: {rough}", remedy),
    ]


def operations(block: RunBlock) -> int:
    """Operations of a network for one image, counted without computing them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from benchmark.models.networks import build_net

    facts, model = block.facts, block.run.model
    shape = (facts.channels, facts.size, facts.size)
    parameters = {key: value for key, value in model.parameters.items() if key not in ("pretrained", "start")}
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        build_net(model.name, facts.classes, shape, parameters, 0).eval()(torch.empty(1, *shape))
    return int(counter.get_total_flops())


def data(paper: str, runs: Sequence[RunConfig], preset: str, asked: bool) -> CheckResult:
    """Data sets and weights of a paper: there, or missing."""
    found: dict[str, list[str]] = {"there": [], "download by themselves": [], "missing": []}
    for need in estimate.data_needs(runs):
        itself = "download by themselves" if "downloads by itself" in need.state else "missing"
        found["there" if need.state in ("prepared", "raw files there") else itself].append(need.name)
    for path, source in estimate.weights_needed(runs).items():
        absent = "missing" if source.is_exported else "download by themselves"
        found["there" if path.exists() else absent].append(path.name)
    text = "; ".join(f"{what}: {', '.join(dict.fromkeys(names))}" for what, names in found.items() if names)
    if found["missing"]:
        where = f"python -m benchmark plan paper={paper} table=1 preset={preset} timing=off"
        return CheckResult(
            paper, bad(asked), text, f"Set data=FOLDER or FEDTABLES_DATA. Where to get them: {where}"
        )
    wanted = bool(found["download by themselves"])
    return CheckResult(paper, "note" if wanted else "ok", text, "Needs a network once" if wanted else "")
