"""Losses after one round over heterogeneity: the experiment of FedLD's Fig. 2, for its analysis and its figure.

Zeng, Guo, Wang, Wang, Zhou, Qu, FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, section 3.3

Models are trained naively (cross-entropy) or with margin control, and the naively trained ones are aggregated by the
plain mean and by principal gradients: the same local models for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from benchmark.analyses.decomposition import Decomposition, one_round
from benchmark.analyses.registry import Options
from benchmark.config.compose import compose, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.engine.state import Diverged
from benchmark.errors import ConfigError, format_validation_error
from benchmark.experiments.figures import FIGURE_FOLDER, load_figure
from benchmark.experiments.plan import with_seed
from benchmark.reports.tables import Table, text_table
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from benchmark.runs.store import Results
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal

FIGURE = "fedld_figure2"
"""The file of conf/figure with the settings of all presets."""

NAIVE, MARGIN, MEAN, PRINCIPAL = "naive", "margin", "mean", "principal"

NOTES = (
    "Eq. 2: L(w) = local loss + distribution shift + aggregation. The shift and aggregation losses are the absolute "
    "values of the last two, which are sums over clients. Means over seeds, sd with divisor n - 1. Plain cross-entropy "
    "on the clients' training samples after one round from the initial model, all clients taking part.",
    "Training naive: cross-entropy; margin: with margin control. The mean and the principal gradients aggregate the "
    "same naively trained models.",
)


class Experiment(BaseModel):
    """What Fig. 2 is made of in one preset.

    ``alphas`` are of the Dirichlet partition, ``lam`` is lambda of the margin, ``proportion`` L / m of the principal
    gradients, ``settings`` those of the runs, as in a table: data, model, clients, budget of the round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    alphas: tuple[PositiveFloat, ...] = Field(min_length=1)
    seeds: PositiveInt
    lam: float = Field(ge=0, allow_inf_nan=False)
    proportion: float = Field(gt=0, le=1)
    settings: dict[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Experiment:
        """Check ``values``; `ConfigError` naming each wrong one."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(f"loss decomposition: {format_validation_error(error, cls)}") from error


def configurations(
    experiment: Experiment, preset: str, extra: Mapping[str, Any] | None = None
) -> dict[float, RunConfig]:
    """The run of each alpha, seed 0; `ConfigError` for data or a model that is not there."""
    found = {}
    for alpha in experiment.alphas:
        settings = merge(experiment.settings, {"partition": {"name": "dirichlet", "alpha": alpha}})
        found[alpha] = resolve(compose(preset, settings, extra or {}))
    return found


def measure(
    experiment: Experiment, preset: str, extra: Mapping[str, Any], folder: Path | None
) -> pd.DataFrame:
    """Train and decompose; long form: alpha, seed, training, aggregation and the terms of the loss.

    ``extra``: paths and runtime of the runs. ``folder``: where partitions are kept.
    """
    rows = []
    for alpha, config in configurations(experiment, preset, extra).items():
        torch.set_num_threads(config.runtime.threads)
        for seed in range(experiment.seeds):
            for (training, aggregation), terms in _both(with_seed(config, seed), experiment, folder).items():
                signed = asdict(terms)
                row = {"alpha": alpha, "seed": seed, "training": training, "aggregation": aggregation}
                row |= {"local_loss": signed.pop("local"), **signed}
                row |= {"shift_loss": terms.shift, "aggregation_loss": terms.aggregation}
                rows.append(row | {"global_loss": terms.total})
    return pd.DataFrame(rows)


def _both(
    config: RunConfig, experiment: Experiment, folder: Path | None
) -> dict[tuple[str, str], Decomposition]:
    """Naive training under both aggregations, margin training under the plain mean; same data, start and batches."""
    data = load_data(config, folder)
    naive, margin = build_run(config, data), build_run(config, data)
    margin = replace(margin, method=replace(margin.method, client=(Margin(lam=experiment.lam),)))
    mean, principal = MeanDirection(), Principal(proportion=experiment.proportion)
    try:
        found = {
            NAIVE: one_round(naive, {MEAN: mean, PRINCIPAL: principal}),
            MARGIN: one_round(margin, {MEAN: mean}),
        }
    except Diverged as error:
        raise ConfigError(
            f"loss decomposition, alpha {config.partition.parameters['alpha']:g}, seed {config.seed}: {error}. Lower "
            f"options.settings.train.lr in conf/figure/{FIGURE}.yaml."
        ) from error
    return {(training, name): terms for training, by_name in found.items() for name, terms in by_name.items()}


def summary(data: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over seeds of each alpha, training and aggregation; in order of appearance."""
    terms = ["local_loss", "shift_loss", "aggregation_loss", "global_loss"]
    groups = data.groupby(["alpha", "training", "aggregation"], sort=False)
    found = groups[terms].mean()
    for term in terms[1:3]:
        found.insert(found.columns.get_loc(term) + 1, f"{term}_sd", groups[term].std())
    found.insert(0, "seeds", groups.size())
    return found.reset_index()


def remarks(experiment: Experiment, preset: str) -> tuple[str, ...]:
    """Data, model and budget, for a caption."""
    config = next(iter(configurations(experiment, preset).values()))
    train = config.train
    count, unit = (train.epochs, "epoch") if train.epochs else (train.steps, "step")
    budget = f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    stands = config.dataset.options.get("stands_for")
    what = f"scikit-learn's digits in place of {stands}" if stands else config.dataset.name
    clients = config.partition.parameters["clients"]
    return (
        f"Preset {preset}: {what}; {config.model.name}; {clients} clients, {budget} in batches of {train.batch_size} "
        f"at rate {train.lr:g}; lambda {experiment.lam:g}, L = {experiment.proportion:g} m.",
    )


@dataclass(frozen=True)
class LossDecompositionOptions(Options):
    """What differs from the figure's own experiment; None: nothing."""

    preset: str = "quick"
    alphas: Annotated[str | None, "NUMBER,NUMBER,..."] = None
    seeds: int | None = None
    clients: int | None = None
    lam: float | None = None
    proportion: float | None = None
    data: Path | None = None
    device: str = "auto"
    threads: int = 1

    @property
    def experiment(self) -> Experiment:
        """The figure's experiment in the preset, with these options on top."""
        values = dict(load_figure(FIGURE_FOLDER / f"{FIGURE}.yaml").settings(self.preset))
        given = {"seeds": self.seeds, "lam": self.lam, "proportion": self.proportion}
        values |= {key: value for key, value in given.items() if value is not None}
        if self.alphas is not None:
            values["alphas"] = self.alphas.split(",")
        if self.clients is not None:
            values["settings"] = merge(values["settings"], {"partition": {"clients": self.clients}})
        return Experiment.of(values)

    @property
    def extra(self) -> dict[str, Any]:
        """Paths and runtime of the runs."""
        paths = {"results": str(self.results), "data": None if self.data is None else str(self.data)}
        return {"paths": paths, "runtime": {"threads": self.threads, "device": self.device}}


def loss_decomposition(options: LossDecompositionOptions) -> Table:
    """Local, distribution shift and aggregation loss after one round (FedLD, Eq. 2)."""
    preset, experiment = options.preset, options.experiment
    folder = Results(options.results).open().root / "partitions"
    data = measure(experiment, preset, options.extra, folder)
    title = f"FedLD (MICCAI 2024), Eq. 2: decomposition of the global loss, preset {preset}"
    notes = (*NOTES, *remarks(experiment, preset))
    return text_table("fedld_loss_decomposition", title, summary(data), notes)
