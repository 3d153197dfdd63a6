"""What the global loss is made of after one round: FedLD's Eq. 2, and the numbers of its Fig. 2.

Zeng, Guo, Wang, Wang, Zhou, Qu, FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, sections 2.2 and 3.3

With r_i = n_i / n, w_i the locally trained models, w the aggregated one, L_j(v) the plain cross-entropy of v on the
training samples of client j (evaluation mode, no augmentation) and L(v) = sum_j r_j L_j(v):

    L(w) = sum_i r_i L_i(w_i) + sum_i r_i (L(w_i) - L_i(w_i)) + sum_i r_i (L(w) - L(w_i)).
           local loss           distribution shift             aggregation

Distribution shift loss and aggregation loss are the absolute values of the second and third sum. Models are trained
naively (cross-entropy) or with margin control, and the naively trained ones are aggregated by the plain mean and by
principal gradients: the same w_i for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError
from torch import Tensor

from benchmark.analyses.registry import Report, analysis
from benchmark.cli.arguments import positive, preset_of
from benchmark.cli.launching import settings_of_runs
from benchmark.config.compose import compose, group_names, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import Diverged, FederatedRun, FederationState
from benchmark.engine.views import FrozenView
from benchmark.errors import ConfigError, format_validation_error
from benchmark.experiments.plan import with_seed
from benchmark.figures.spec import find_figures
from benchmark.runs.execute import build_run, load_data
from benchmark.runs.store import Results
from methods.core.contexts import ClientContext, Federation, Reducer, RoundView, State, Trained
from methods.core.rules import Aggregator, ClientRule
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal

FIGURE = "fedld_figure2"
"""The file of conf/figure with the settings of all presets."""

NAIVE, MARGIN, MEAN, PRINCIPAL = "naive", "margin", "mean", "principal"


# Eq. 2 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decomposition:
    """The three terms of Eq. 2, with their signs; they sum to L(w)."""

    local: float
    shift_signed: float
    aggregation_signed: float

    @property
    def total(self) -> float:
        """L(w)."""
        return self.local + self.shift_signed + self.aggregation_signed

    @property
    def shift(self) -> float:
        """Distribution shift loss: the absolute value of the sum."""
        return abs(self.shift_signed)

    @property
    def aggregation(self) -> float:
        """Aggregation loss: the absolute value of the sum."""
        return abs(self.aggregation_signed)


def decompose(local: np.ndarray, aggregated: np.ndarray, r: np.ndarray) -> Decomposition:
    """Eq. 2 from ``local`` [m, m], local[j, i] = L_j(w_i), ``aggregated`` [m], L_j(w), and shares r [m]."""
    m = len(r)
    if local.shape != (m, m) or aggregated.shape != (m,):
        raise ValueError(f"{m} shares, but losses of shape {local.shape} and {aggregated.shape}")
    own, everywhere = local.diagonal(), r @ local  # L_i(w_i), L(w_i)
    return Decomposition(
        local=float(r @ own),
        shift_signed=float(r @ (everywhere - own)),
        aggregation_signed=float(r @ aggregated - r @ everywhere),
    )


# One round of a federation -----------------------------------------------------------------------------------------


class LocalModels(ClientRule):
    """Sends every trained model, with its BatchNorm buffers, to the server, which keeps them; changes nothing."""

    key: ClassVar[str] = "local_models"
    reducers: ClassVar[Mapping[str, Reducer]] = {"w": "keep", "buffers": "keep"}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """The client's w_i [d] and buffers."""
        return {}, {"w": trained.w, "buffers": trained.buffers}

    def receive(self, server: State, view: RoundView) -> State:
        """{w: {client: w_i}, buffers: {client: ...}} of this round."""
        return view.payload


class Several(Aggregator):
    """Several directions from the same updates: the model follows the first, the state keeps each Dbar by its name."""

    key: ClassVar[str] = "several"
    rules: dict[str, Aggregator]

    def setup(self, federation: Federation) -> State:
        """Each rule's own state."""
        return {name: rule.setup(federation) for name, rule in self.rules.items()}

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar of the first rule, {name: Dbar})."""
        found = {name: rule.direction(updates, p, view, state[name])[0] for name, rule in self.rules.items()}
        return next(iter(found.values())), found


@torch.no_grad()
def client_losses(run: FederatedRun, w: Tensor, buffers: Tensor) -> np.ndarray:
    """L_j(w) [K]: mean cross-entropy over all training samples of each client, in evaluation mode."""
    model = FrozenView(run.model, run.pool.board, w, buffers)
    losses = np.zeros(run.num_clients)
    for j in range(run.num_clients):
        for x, y in run.data(j).batches():
            logits = model.logits(x).double()
            losses[j] += float(F.cross_entropy(logits, y, reduction="sum"))
    return losses / np.maximum(run.sizes, 1)


def one_round(run: FederatedRun, directions: Mapping[str, Aggregator]) -> dict[str, Decomposition]:
    """Train one round with the client rules of ``run``; Eq. 2 for the model that each direction makes of it.

    All clients take part. Each local model is evaluated with its own BatchNorm buffers, the aggregated ones with the
    averaged buffers.
    """
    method = replace(
        run.method, client=(*run.method.client, LocalModels()), direction=Several(rules=dict(directions))
    )
    run = replace(
        run, method=method, schedule=replace(run.schedule, rounds=1, clients_per_round=run.num_clients)
    )
    before = run.initial_state()
    after, _ = run.step(before)
    kept = after.rules[LocalModels.key]
    clients = range(run.num_clients)
    local = np.stack([client_losses(run, kept["w"][i], kept["buffers"][i]) for i in clients], axis=1)
    r = run.sizes / run.sizes.sum()
    return {
        name: decompose(local, client_losses(run, _model(run, before, dbar), after.buffers), r)
        for name, dbar in after.direction.items()
    }


def _model(run: FederatedRun, before: FederationState, dbar: Tensor) -> Tensor:
    return run.method.optimizer.step(before.w, dbar, before.optimizer)[0]


# The experiment of Fig. 2 ------------------------------------------------------------------------------------------


class Options(BaseModel):
    """What Fig. 2 is made of in one preset.

    Attributes:
        alphas: concentrations of the Dirichlet partition.
        seeds: number of seeds (0, 1, ...).
        lam: lambda of the margin.
        proportion: L / m of the principal gradients.
        settings: of the runs, as in a table: data, model, clients, budget of the round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    alphas: tuple[PositiveFloat, ...] = Field(min_length=1)
    seeds: PositiveInt
    lam: float = Field(ge=0, allow_inf_nan=False)
    proportion: float = Field(gt=0, le=1)
    settings: dict[str, Any]


def read_options(values: Mapping[str, Any]) -> Options:
    """Checked options; `ConfigError` naming each wrong one."""
    try:
        return Options.model_validate(dict(values))
    except ValidationError as error:
        message = format_validation_error(error, Options)
        raise ConfigError(f"loss decomposition: {message}") from error


def configurations(options: Options, preset: str, extra: Mapping[str, Any]) -> dict[float, RunConfig]:
    """The run of each alpha, seed 0; `ConfigError` for data or a model that is not there."""
    for group in ("dataset", "model"):
        node = options.settings.get(group)
        name = node.get("name") if isinstance(node, Mapping) else node
        if name is not None and name not in group_names(group):
            raise ConfigError(
                f"loss decomposition: preset {preset} needs the {group} {name!r}, which is not available yet "
                f"(conf/{group}/ has {', '.join(group_names(group))}). Take another preset, or set options.settings in "
                f"conf/figure/{FIGURE}.yaml."
            )
    found = {}
    for alpha in options.alphas:
        settings = merge(options.settings, {"partition": {"name": "dirichlet", "alpha": alpha}})
        found[alpha] = resolve(compose(preset, settings, extra))
    return found


def measure(options: Options, preset: str, extra: Mapping[str, Any], folder: Path | None) -> pd.DataFrame:
    """Every decomposition in long form: alpha, seed, training, aggregation and the terms.

    ``extra`` are paths and runtime; partitions are kept in ``folder``.
    """
    rows = []
    for alpha, config in configurations(options, preset, extra).items():
        torch.set_num_threads(config.runtime.threads)
        for seed in range(options.seeds):
            for training, found in _both(with_seed(config, seed), options, folder).items():
                for aggregation, terms in found.items():
                    rows.append((alpha, seed, training, aggregation, terms.local, terms.shift_signed,
                                 terms.aggregation_signed, terms.shift, terms.aggregation, terms.total))  # fmt: skip
    columns = ["alpha", "seed", "training", "aggregation", "local_loss", "shift_signed", "aggregation_signed"]
    return pd.DataFrame(rows, columns=[*columns, "shift_loss", "aggregation_loss", "global_loss"])


def _both(config: RunConfig, options: Options, folder: Path | None) -> dict[str, dict[str, Decomposition]]:
    """Naive training under both aggregations, margin training under the plain mean; same data, start and batches."""
    data = load_data(config, folder)
    naive, margin = build_run(config, data), build_run(config, data)
    margin = replace(margin, method=replace(margin.method, client=(Margin(lam=options.lam),)))
    mean, principal = MeanDirection(), Principal(proportion=options.proportion)
    try:
        return {
            NAIVE: one_round(naive, {MEAN: mean, PRINCIPAL: principal}),
            MARGIN: one_round(margin, {MEAN: mean}),
        }
    except Diverged as error:
        raise ConfigError(
            f"loss decomposition, alpha {config.partition.parameters['alpha']:g}, seed {config.seed}: {error}. Lower "
            f"options.settings.train.lr in conf/figure/{FIGURE}.yaml."
        ) from error


# The command -------------------------------------------------------------------------------------------------------

KEYS = {
    "preset": "quick|small|paper",
    "alphas": "NUMBER,NUMBER,...",
    "seeds": "NUMBER",
    "clients": "NUMBER",
    "lam": "NUMBER",
    "proportion": "NUMBER",
    "results": "FOLDER",
    "data": "FOLDER",
    "device": "auto|cpu|cuda",
    "threads": "NUMBER",
}

NOTES = (
    "Eq. 2: L(w) = local loss + distribution shift + aggregation. The shift and aggregation losses are the absolute "
    "values of the last two, which are sums over clients. Means over seeds, sd with divisor n - 1. Plain cross-entropy "
    "on the clients' training samples after one round from the initial model, all clients taking part.",
    "Training naive: cross-entropy; margin: with margin control. The mean and the principal gradients aggregate the "
    "same naively trained models.",
)


def summary(data: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over seeds of each alpha, training and aggregation; in order of appearance."""
    terms = ["local_loss", "shift_loss", "aggregation_loss", "global_loss"]
    groups = data.groupby(["alpha", "training", "aggregation"], sort=False)
    found = groups[terms].mean()
    for term in terms[1:3]:
        found.insert(found.columns.get_loc(term) + 1, f"{term}_sd", groups[term].std())
    found.insert(0, "seeds", groups.size())
    return found.reset_index()


def _numbers(values: Mapping[str, str], key: str) -> list[float]:
    try:
        return [float(word) for word in values[key].split(",")]
    except ValueError:
        raise ConfigError(f"{key}: came {values[key]!r}; expected numbers, like {KEYS[key]}.") from None


def options_of(values: Mapping[str, str]) -> Options:
    """The figure's options in the preset, with what the command line says on top."""
    preset = preset_of(values)
    spec = next(spec for spec in find_figures() if spec.name == FIGURE)
    options = dict(spec.settings(preset))
    if "alphas" in values:
        options["alphas"] = _numbers(values, "alphas")
    for key in ("lam", "proportion"):
        if key in values:
            options[key] = _numbers(values, key)[0]
    if (seeds := positive(values, "seeds")) is not None:
        options["seeds"] = seeds
    if (clients := positive(values, "clients")) is not None:
        options["settings"] = merge(options["settings"], {"partition": {"clients": clients}})
    return read_options(options)


@analysis("loss-decomposition", KEYS)
def loss_decomposition(values: Mapping[str, str]) -> Report:
    """Local, distribution shift and aggregation loss after one round (FedLD, Eq. 2)."""
    preset, options = values.get("preset", "quick"), options_of(values)
    root = Results(Path(values.get("results", "results"))).open().root
    data = measure(options, preset, settings_of_runs(values), root / "partitions")
    return Report(
        name="fedld_loss_decomposition",
        title=f"FedLD (MICCAI 2024), Eq. 2: decomposition of the global loss, preset {preset}",
        data=summary(data),
        notes=(*NOTES, *remarks(options, preset)),
    )


def remarks(options: Options, preset: str) -> Sequence[str]:
    """Data, model and budget, for a caption."""
    config = next(iter(configurations(options, preset, {}).values()))
    train = config.train
    count, unit = (train.epochs, "epoch") if train.epochs else (train.steps, "step")
    budget = f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    stands = config.dataset.options.get("stands_for")
    what = f"scikit-learn's digits in place of {stands}" if stands else config.dataset.name
    clients = config.partition.parameters["clients"]
    return (
        f"Preset {preset}: {what}; {config.model.name}; {clients} clients, {budget} in batches of {train.batch_size} "
        f"at rate {train.lr:g}; lambda {options.lam:g}, L = {options.proportion:g} m.",
    )
