"""What a client holds and how long it trains: FedMR's Fig. 4a, counted and timed method by method.

Fan et al., FedMR, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7, section 4.4

`NOTES` says what counts. Held during local training of a round in which a client takes part again.
"""

import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd
import seaborn as sns
import torch
from torch import Tensor

from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.state import Diverged, FederationState
from benchmark.engine.training import ActiveRule
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.papers.figures import Drawing, Request, panels
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from methods.core.contexts import ClientContext, FrozenModel, Head

NOTES = (
    "Held by a client: model and buffers, the received model where the method reads it while it trains, other models, "
    "what is received beyond the model and what is kept between rounds, as this code holds them. Without gradients, "
    "momentum and data, which are the same for all.",
    "Seconds: one round of the first client of the partition alone, with its server's step, medians over repeats that "
    "are taken in turn. They hold for one machine only; compare them within a column of methods.",
    "FedMR's and FedProc's pass over the data for the prototypes is part of the round.",
)


class _Watched(ClientContext):
    """A context that remembers whether its ``w``, the received model, was read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "w":
            super().__getattribute__("__dict__")["read"] = True
        return super().__getattribute__(name)


@dataclass
class Trainee:
    """The first client of a configuration's partition, alone with its server, after it has taken part once."""

    run: FederatedRun
    state: FederationState

    @classmethod
    def of(cls, config: RunConfig, warm: int = 1) -> "Trainee":
        """Build it and let it take part in ``warm`` rounds."""
        whole = build_run(config, load_data(config))
        first = replace(whole.problem, clients=whole.problem.clients[:1], evaluation_sets={})
        run = replace(whole, problem=first, schedule=replace(whole.schedule, clients_per_round=1))
        state = run.initial_state()
        for _ in range(warm):
            state, _ = run.run_round(state)
        return cls(run, state)

    def seconds(self, rounds: int = 1) -> float:
        """Seconds of a round, mean over the next ``rounds``. Does not change the state."""
        started, state = time.perf_counter(), self.state
        for _ in range(rounds):
            state, _ = self.run.run_round(state)
        device = self.run.problem.images.device
        if device.type != "cpu":
            torch.get_device_module(device).synchronize(device)
        return (time.perf_counter() - started) / rounds

    def held(self) -> dict[str, int]:
        """How many numbers the client holds in one more round, by kind."""
        run, contexts, frozen = self.run, self.run.clients.contexts, self.run.clients.frozen
        seen: list[_Watched] = []
        others: list[Tensor] = []

        def watched(*arguments: Any) -> list[ActiveRule]:
            active = [replace(one, ctx=_Watched(**vars(one.ctx))) for one in contexts(*arguments)]
            seen.extend(cast(_Watched, one.ctx) for one in active)
            return active

        def noted(cost: Cost, w: Tensor, *values: Any) -> FrozenModel:
            if w is not run.model.w:
                others.append(w)
            return frozen(cost, w, *values)

        run.clients.contexts = watched  # type: ignore[assignment, method-assign]
        run.clients.frozen = noted  # type: ignore[assignment, method-assign]
        try:
            state, _ = run.run_round(self.state)
        finally:
            del run.clients.contexts, run.clients.frozen
        size, buffers = run.model.layout.size, len(run.model.buffers)
        return {
            "model": size + buffers,
            "received_model": size if any("read" in vars(ctx) for ctx in seen) else 0,
            "other_models": len(others) * (size + buffers),
            "received": sum(numbers(ctx.received) for ctx in seen),
            "kept": numbers(state.clients.get(0, {})),
        }


def numbers(value: Any) -> int:
    """How many numbers a state or message holds."""
    if isinstance(value, Mapping):
        return sum(numbers(item) for item in value.values())
    if isinstance(value, Head):
        return value.vector.numel()
    if isinstance(value, list | tuple):
        return sum(map(numbers, value))
    return value.numel() if isinstance(value, Tensor) else 0


def measure(spec: TableSpec, cells: Cells, repeats: int) -> pd.DataFrame:
    """Long form, one line per row and column that can run: numbers held, by what they are, and seconds per round."""
    lines = []
    for column in spec.run_columns:
        for label, (trainee, seconds) in timed(spec, cells, column.key, repeats).items():
            held = trainee.held()
            line = {"column": column.key, "method": label, **held}
            lines.append(line | {"held": sum(held.values()), "seconds": seconds})
    return pd.DataFrame(lines)


def timed(
    spec: TableSpec, cells: Cells, column: str, repeats: int, *, warm: int = 1, rounds: int = 1
) -> dict[str, tuple[Trainee, float]]:
    """label -> (trainee, seconds of a round) of the rows that can run in a column, timed in turn.

    Medians of ``repeats`` means over ``rounds`` rounds, which come after ``warm`` others. Rows that diverge in these
    rounds are left out.
    """
    configs = {row.label: cells[row.key, column].runs[0] for row in spec.rows if cells[row.key, column].runs}
    torch.set_num_threads(max((config.runtime.threads for config in configs.values()), default=1))
    trainees: dict[str, Trainee] = {}
    for label, config in configs.items():
        with suppress(Diverged):
            trainee = Trainee.of(config, warm)
            trainee.seconds(rounds)  # the rounds that are timed below
            trainees[label] = trainee
    times: dict[str, list[float]] = {label: [] for label in trainees}
    for _ in range(repeats):
        for label, trainee in trainees.items():
            times[label].append(trainee.seconds(rounds))
    return {label: (trainee, statistics.median(times[label])) for label, trainee in trainees.items()}


def resources(request: Request) -> Drawing:
    """Numbers held by a client and seconds per round, both over FedAvg's, and the table's metric; means over columns.

    The first row is what the others are divided by; methods that do not exist yet are left out. Options: ``repeats``
    of the timing.
    """
    spec = request.runs
    measured = measure(spec, request.cells, int(request.option("repeats", 3)))
    if measured.empty:
        raise request.nothing("none of its methods can run; nothing to draw.")
    first = spec.rows[0].label
    over = measured.set_index(["column", "method"])[["held", "seconds"]]
    over = over / over.xs(first, level="method").reindex(over.index, level="column")
    shown, reached = spec.metric_format, _reached(request)
    unit = f" ({shown.unit})" if shown.unit else ""
    parts = [
        ("numbers held by a client", f"over {first}'s", over["held"].reset_index(name="value")),
        ("time of a client's round", f"over {first}'s", over["seconds"].reset_index(name="value")),
        (shown.label, f"mean over columns{unit}", reached),
    ]
    order = [row.label for row in spec.rows if row.label in set(measured["method"])]
    figure, axes = panels(1, len(parts), width=3.4, height=0.55 + 0.28 * len(order))
    for axis, (title, label, data) in zip(axes, parts, strict=True):
        # Held numbers and times are spread over data sets, what is reached over seeds.
        sns.barplot(
            data, y="method", x="value", order=order, hue="method", hue_order=order, palette="colorblind",
            errorbar=("sd" if data is reached else None), err_kws={"linewidth": 1}, ax=axis, legend=False,
        )  # fmt: skip
        axis.set_title(title, fontsize=10)
        axis.set(xlabel=label, ylabel="")
        axis.tick_params(labelsize=8)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    long = [
        measured.melt(["column", "method"], ["held", "seconds"], "measure"),
        reached.assign(measure=spec.metric, column="mean"),
    ]
    remarks = (
        f"Left and middle: means over columns of the quotient by {first}. Right: mean over seeds of the mean over "
        "columns; line: one sample standard deviation.",
        *NOTES,
    )
    return Drawing(figure, pd.concat(long, ignore_index=True), remarks)


def _reached(request: Request) -> pd.DataFrame:
    """method, seed, value: mean over the columns of each seed that is done in all of them."""
    spec, results = request.runs, request.results
    rows = [
        (row.label, seed, value)
        for row in spec.rows
        for column in spec.run_columns
        for seed, value in results.cell(row, column).values.items()
    ]
    values = pd.DataFrame(rows, columns=["method", "seed", "value"])
    seeds = values.groupby(["method", "seed"], sort=False)["value"].agg(["mean", "size"])
    whole = seeds[seeds["size"] == len(spec.run_columns)]["mean"]
    return whole.rename("value").reset_index()
