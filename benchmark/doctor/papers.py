"""What Table 1 of each paper needs of this machine: hours, data sets and weights."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmark.config.schema import RunConfig
from benchmark.doctor import CheckResult, bad
from benchmark.experiments import estimate
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery, find_tables, plan_tables

Runs = Mapping[str, Sequence[RunConfig]]
"""Paper -> the runs of its Table 1."""


def runs_of(query: TableQuery, data: Path | None) -> Runs:
    """The runs of the selected tables. `NoTable` if there are none."""
    plans = plan_tables(find_tables(query), query, {"paths": {"data": None if data is None else str(data)}})
    return {spec.paper: list(unique_runs([cells]).values()) for spec, cells in plans}


def speed(runs: Runs, preset: str, device: str) -> Iterator[CheckResult]:
    """Samples per second of the network of median cost, measured, and hours of each paper, scaled from it."""
    from benchmark.runs.cost import operations

    blocks = {paper: estimate.blocks(paper, runs_of_paper) for paper, runs_of_paper in runs.items()}
    networks = {block.network: block for parts in blocks.values() for block in parts}
    costs = {network: operations(block.run.model, block.facts) for network, block in networks.items()}
    block = sorted(networks.values(), key=lambda block: costs[block.network])[len(networks) // 2]
    pace = estimate.timed(block, device).seconds
    hours = {
        paper: sum(part.hours(pace * costs[part.network] / costs[block.network]) for part in parts)
        for paper, parts in blocks.items()
    }
    shown = ", ".join(f"{paper} {estimate.in_words(time)}" for paper, time in hours.items())
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    network = f"{block.run.model.name}, {block.facts.size} px, a short training"
    yield CheckResult("speed", "ok", f"{1 / pace:,.0f} samples/s ({network}, {load})")
    rough = f"Table 1, preset {preset}, one run at a time; rough, by operations of the networks (`plan` times each)"
    long = max(hours.values()) > estimate.YEAR
    remedy = "That needs GPUs: device=cuda, or launcher=slurm" if long else ""
    yield CheckResult("hours", "note" if long else "ok", f"{shown}: {rough}", remedy)


def data(paper: str, runs: Sequence[RunConfig], preset: str, asked: bool) -> CheckResult:
    """Data sets and weights of a paper: there, or missing."""
    there: dict[str, None] = {}
    downloads, missing = there.copy(), there.copy()
    for need in estimate.data_needs(runs):
        itself = downloads if "downloads by itself" in need.state else missing
        (there if need.state in ("prepared", "raw files there") else itself)[need.name] = None
    for path, source in estimate.weights_needed(runs).items():
        absent = missing if source.is_exported else downloads
        (there if path.exists() else absent)[path.name] = None
    groups = {"there": there, "download by themselves": downloads, "missing": missing}
    text = "; ".join(f"{what}: {', '.join(names)}" for what, names in groups.items() if names)
    if missing:
        where = f"python -m benchmark plan paper={paper} table=1 preset={preset} timing=off"
        remedy = f"Set data=FOLDER or FEDTABLES_DATA. Where to get them: {where}"
        return CheckResult(paper, bad(asked), text, remedy)
    if downloads:
        return CheckResult(paper, "note", text, "Needs a network once")
    return CheckResult(paper, "ok", text)
