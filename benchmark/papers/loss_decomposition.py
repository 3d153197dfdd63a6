"""What the global loss is made of after one round: FedLD's Eq. 2, and the experiment of its Fig. 2.

Zeng, Guo, Wang, Wang, Zhou, Qu, FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, sections 2.2 and 3.3

With r_i = n_i / n, w_i the locally trained models, w the aggregated one, L_j(v) the plain cross-entropy of v on the
training samples of client j (evaluation mode, no augmentation) and L(v) = sum_j r_j L_j(v):

    L(w) = sum_i r_i L_i(w_i) + sum_i r_i (L(w_i) - L_i(w_i)) + sum_i r_i (L(w) - L(w_i)).
           local loss           distribution shift             aggregation

Distribution shift loss and aggregation loss are the absolute values of the second and third sum. In the experiment,
models are trained naively (cross-entropy) or with margin control, and the naively trained ones are aggregated by the
plain mean and by principal gradients: the same local models for both.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.config.compose import compose, resolve
from benchmark.config.files import FileModel
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Diverged
from benchmark.errors import ConfigError, validate
from benchmark.experiments.plan import with_seed
from benchmark.papers.figures import Drawing, Request, panels
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from methods.core.contexts import ClientContext, Reducer, RoundView, State, Trained
from methods.core.rules import Aggregator, ClientRule
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal


class Decomposition(NamedTuple):
    """The three terms of Eq. 2, with their signs; they sum to L(w)."""

    local_loss: float
    shift_signed: float
    aggregation_signed: float


def decompose(local: np.ndarray, aggregated: np.ndarray, r: np.ndarray) -> Decomposition:
    """Eq. 2 from ``local`` [m, m], local[j, i] = L_j(w_i), ``aggregated`` [m], L_j(w), and shares r [m]."""
    at_home, everywhere = local.diagonal(), r @ local  # L_i(w_i), L(w_i)
    terms = r @ at_home, r @ (everywhere - at_home), r @ aggregated - r @ everywhere
    return Decomposition(*map(float, terms))


class LocalModels(ClientRule):
    """Sends every trained model with its BatchNorm buffers to the server, which keeps them. Changes nothing else."""

    key: ClassVar[str] = "local_models"
    reducers: ClassVar[Mapping[str, Reducer]] = {"w": "keep", "buffers": "keep"}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Return ({}, the client's w_i [d] and buffers)."""
        return {}, {"w": trained.w, "buffers": trained.buffers}

    def receive(self, server: State, view: RoundView) -> State:
        """{w: {client: w_i}, buffers: {client: ...}} of this round."""
        return view.payload


class Several(Aggregator):
    """Several stateless aggregations of the same updates. The model follows the first; the state keeps all Dbar."""

    key: ClassVar[str] = "several"
    rules: dict[str, Aggregator]

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """Return (Dbar of the first rule, {name: Dbar})."""
        aggregates = {name: rule.direction(updates, p, view, {})[0] for name, rule in self.rules.items()}
        return next(iter(aggregates.values())), aggregates


@torch.no_grad()
def client_losses(run: FederatedRun, w: Tensor, buffers: Tensor) -> np.ndarray:
    """L_j(w) [K]: mean cross-entropy over all training samples of each client, in evaluation mode."""
    model = run.model.frozen(w, buffers)
    losses = np.zeros(run.num_clients)
    for j in range(run.num_clients):
        for x, y in run.clients.data(j).batches():
            logits = model.logits(x).double()
            losses[j] += float(F.cross_entropy(logits, y, reduction="sum"))
    return losses / np.maximum(run.clients.sizes, 1)


def one_round(run: FederatedRun, directions: Mapping[str, Aggregator]) -> dict[str, Decomposition]:
    """Train one round with all clients and the client rules of ``run``, and apply Eq. 2 to each aggregation.

    Each local model is evaluated with its own BatchNorm buffers, the aggregated ones with the averaged buffers.
    """
    client = (*run.method.client, LocalModels())
    method = replace(run.method, client=client, direction=Several(rules=dict(directions)))
    run = replace(run, method=method, schedule=replace(run.schedule, clients_per_round=run.num_clients))
    before = run.initial_state()
    after, _ = run.run_round(before)
    kept = after.rules[LocalModels.key]
    clients = range(run.num_clients)
    local = np.stack([client_losses(run, kept["w"][i], kept["buffers"][i]) for i in clients], axis=1)
    r = run.clients.sizes / run.clients.sizes.sum()
    decompositions = {}
    for name, dbar in after.direction.items():
        w, _ = run.method.optimizer.step(before.w, dbar, before.optimizer)
        decompositions[name] = decompose(local, client_losses(run, w, after.buffers), r)
    return decompositions


# The experiment ---------------------------------------------------------------------------------------------------


class Experiment(FileModel):
    """What Fig. 2 is made of in one preset.

    ``lam`` is lambda of the margin, ``proportion`` L / m of the principal gradients, ``settings`` are of the runs, as
    in a table: data, model, clients, budget of the round.
    """

    alphas: tuple[PositiveFloat, ...] = Field(min_length=1)
    seeds: PositiveInt
    lam: float = Field(ge=0, allow_inf_nan=False)
    proportion: float = Field(gt=0, le=1)
    settings: dict[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any], seeds: int | None = None) -> "Experiment":
        """Check ``values``, with another number of seeds if one is given; `ConfigError` naming each wrong one."""
        changes = {} if seeds is None else {"seeds": seeds}
        return validate(cls, {**values, **changes}, before="loss decomposition: ")

    def configuration(self, alpha: float, preset: str, extra: Mapping[str, Any]) -> RunConfig:
        """The run of an alpha, seed 0; `ConfigError` for data or a model that is not there."""
        settings = merge(self.settings, {"partition": {"name": "dirichlet", "alpha": alpha}})
        return resolve(compose(preset, settings, extra))


def measure(experiment: Experiment, preset: str, extra: Mapping[str, Any]) -> pd.DataFrame:
    """Train and decompose; long form: alpha, seed, training, aggregation and the terms of the loss.

    ``extra``: paths and runtime of the runs.
    """
    rows = []
    for alpha in experiment.alphas:
        config = experiment.configuration(alpha, preset, extra)
        torch.set_num_threads(config.runtime.threads)
        for seed in range(experiment.seeds):
            for training, sums in _trainings(with_seed(config, seed), experiment).items():
                rows += [(alpha, seed, training, name, *terms) for name, terms in sums.items()]
    data = pd.DataFrame(rows, columns=["alpha", "seed", "training", "aggregation", *Decomposition._fields])
    return data.assign(
        shift_loss=data["shift_signed"].abs(),
        aggregation_loss=data["aggregation_signed"].abs(),
        global_loss=data["local_loss"] + data["shift_signed"] + data["aggregation_signed"],
    )


def _trainings(config: RunConfig, experiment: Experiment) -> dict[str, dict[str, Decomposition]]:
    """Naive training under both aggregations, margin training under the plain mean; same data, start and batches."""
    data = load_data(config)
    naive, margin = build_run(config, data), build_run(config, data)
    margin = replace(margin, method=replace(margin.method, client=(Margin(lam=experiment.lam),)))
    mean, principal = MeanDirection(), Principal(proportion=experiment.proportion)
    try:
        return {
            "naive": one_round(naive, {"mean": mean, "principal": principal}),
            "margin": one_round(margin, {"mean": mean}),
        }
    except Diverged as error:
        where = f"alpha {config.partition.parameters['alpha']:g}, seed {config.seed}"
        raise ConfigError(
            f"loss decomposition, {where}: {error}. Lower train.lr in conf/figure/fedld_figure2.yaml."
        ) from error


def remark(experiment: Experiment, preset: str) -> str:
    """Data, model and budget, for a caption."""
    config = experiment.configuration(experiment.alphas[0], preset, {})
    train, clients = config.train, config.partition.parameters["clients"]
    stands = config.dataset.options.get("stands_for")
    data = f"digits in place of {stands}" if stands else config.dataset.name
    return (
        f"Preset {preset}: {data}; {config.model.name}; clients {clients}, epochs {train.epochs}, batches of "
        f"{train.batch_size}, rate {train.lr:g}; lambda {experiment.lam:g}, L = {experiment.proportion:g} m."
    )


SHIFT, AGGREGATION = ("shift_loss", "firebrick", "o"), ("aggregation_loss", "steelblue", "s")
"""Term of Eq. 2, colour, marker."""

CURVES = (
    ("naive", "mean", SHIFT, "--", "distribution shift loss, naive training"),
    ("margin", "mean", SHIFT, "-", "distribution shift loss, margin control"),
    ("naive", "mean", AGGREGATION, "--", "aggregation loss, plain mean"),
    ("naive", "principal", AGGREGATION, "-", "aggregation loss, principal gradients"),
)
"""Training, aggregation, term, line, label: the colours of the paper, the methods without FedLD's parts dashed."""


def loss_decomposition(request: Request) -> Drawing:
    """Four lines over alpha: mean over seeds with bars of one sample standard deviation; dotted: with their signs.

    Options: those of `Experiment`.
    """
    experiment = Experiment.of(request.options, request.seeds)
    data = measure(experiment, request.preset, request.extra)
    figure, axes = panels(1, 1, width=5.6, height=3.8)
    draw(axes[0], data)
    marks = "Marks: mean over seeds; bars: one sample standard deviation."
    spread = marks if experiment.seeds > 1 else "One seed."
    signs = "Dotted: the sums with their signs; a negative one lowers the global loss."
    return Drawing(figure, data, (spread, signs, remark(experiment, request.preset)))


def draw(axis: Axes, data: pd.DataFrame) -> None:
    """The four curves of ``data`` and their signs (long form, one line per alpha, seed, training and aggregation)."""
    alphas = data["alpha"].unique()
    for number, (training, aggregation, (term, colour, marker), line, label) in enumerate(CURVES):
        part = data[(data["training"] == training) & (data["aggregation"] == aggregation)]
        groups = part.groupby("alpha", sort=False)[term]
        # Side by side, so that bars and coinciding lines can be told apart.
        x = np.arange(len(alphas)) + 0.06 * (number - 1.5)
        face = "white" if line == "--" else colour
        axis.errorbar(
            x, groups.mean(), yerr=groups.std().fillna(0), label=label, color=colour, linestyle=line, marker=marker,
            markerfacecolor=face, markersize=4, capsize=2, linewidth=1.3,
        )  # fmt: skip
        signed = part.groupby("alpha", sort=False)[term.replace("loss", "signed")].mean()
        axis.plot(x, signed, color=colour, linestyle=":", marker=marker, markersize=2, linewidth=1)
    axis.axhline(0, color="0.7", linewidth=0.8)
    axis.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axis.set_xlabel("Dirichlet alpha (heterogeneity grows to the right)")
    axis.set_ylabel("loss")
    axis.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)  # covers no point
