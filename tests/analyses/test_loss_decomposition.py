"""FedLD's Eq. 2 and Fig. 2: the identity, the terms against loops and against separate runs, command and drawing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from federations import Recorder, federation, mlp, problem_of, run, with_rules
from finished_runs import request
from matplotlib.colors import to_rgb
from torch import Tensor, nn

from benchmark.__main__ import main
from benchmark.analyses import loss_decomposition as analysis
from benchmark.analyses.decomposition import client_losses, decompose, one_round
from benchmark.analyses.loss_decomposition import (
    Experiment,
    LossDecompositionOptions,
    configurations,
    measure,
    summary,
)
from benchmark.errors import ConfigError
from benchmark.experiments.figures import FIGURE_FOLDER, load_figure
from benchmark.figures.analyses import draw, loss_decomposition
from benchmark.figures.registry import panels
from benchmark.models.networks import Net
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal

# Eq. 2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_identity_and_terms_on_random_losses(m: int) -> None:
    """The double sums of Eq. 2 as printed, in loops."""
    rng = np.random.default_rng(m)
    local, aggregated, r = rng.exponential(size=(m, m)), rng.exponential(size=m), rng.dirichlet(np.ones(m))
    found = decompose(local, aggregated, r)
    total = sum(r[j] * aggregated[j] for j in range(m))
    shift = sum(r[j] * r[i] * (local[j, i] - local[i, i]) for j in range(m) for i in range(m))
    each = [sum(r[j] * local[j, i] for j in range(m)) for i in range(m)]
    assert found.local == pytest.approx(sum(r[i] * local[i, i] for i in range(m)), abs=1e-12)
    assert found.shift_signed == pytest.approx(shift, abs=1e-12)
    assert found.aggregation_signed == pytest.approx(
        sum(r[i] * (total - each[i]) for i in range(m)), abs=1e-12
    )
    assert found.total == pytest.approx(total, abs=1e-10)
    if m == 1:
        assert (found.shift, found.aggregation) == (0, pytest.approx(abs(total - found.local), abs=1e-12))


def test_absolute_values_are_those_of_the_sums() -> None:
    """Two clients: w_1 gains 2 elsewhere, w_2 loses 4: with r = 1/2 the shift is (2/2 - 4/2)/2 = -1/2, not 3/2.

    L(w_1) = 2, L(w_2) = 3, L(w) = 1: aggregation 1 - 5/2 = -3/2.
    """
    found = decompose(np.array([[1.0, 1.0], [3.0, 5.0]]), np.array([0.5, 1.5]), np.array([0.5, 0.5]))
    assert (found.local, found.shift_signed, found.aggregation_signed) == (3.0, -0.5, -1.5)
    assert (found.shift, found.aggregation, found.total) == (0.5, 1.5, 1.0)


# One round of a federation in float64 --------------------------------------------------------------------------

SIZES = (7, 12, 20)


def problem() -> Any:
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 6)) + k for k, n in enumerate(SIZES)]
    return problem_of(xs, [rng.integers(0, 3, n) for n in SIZES], 3)


def with_batch_norm() -> Net:
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5))
    return Net(body, nn.Linear(8, 3), 8).double()


def built(make: Any, method: Any, **options: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = make()
    return federation(
        problem(), method, net, **{"lr": 0.3, "batch_size": 4, "epochs": 2, "rounds": 5} | options
    )


def plain_losses(make: Any, w: Tensor, buffers: Tensor) -> list[float]:
    """L_j(w) in plain torch: parameters and running statistics set one by one, evaluation mode, all samples at once."""
    net = make()
    nn.utils.vector_to_parameters(w, net.parameters())
    floating = [b for b in net.buffers() if b.dtype.is_floating_point]
    place = 0
    for buffer in floating:
        buffer.copy_(buffers[place : place + buffer.numel()])
        place += buffer.numel()
    net.eval()
    data = problem()
    with torch.no_grad():
        return [float(F.cross_entropy(net(data.images[c]), data.labels[c])) for c in data.clients]


@pytest.mark.parametrize("make", [mlp, with_batch_norm])
@pytest.mark.parametrize("rule", [None, Margin(lam=0.5)])
def test_decomposition_of_a_real_round(make: Any, rule: Margin | None) -> None:
    """Against models caught by another rule in another run of the same round, and losses in plain torch.

    The cross-entropy is plain also after training with the margin; each local model has its own BatchNorm statistics,
    the aggregated one the averages.
    """
    rules = () if rule is None else (rule,)
    found = one_round(built(make, with_rules(*rules)), {"mean": MeanDirection()})["mean"]
    recorder = Recorder.new()
    state = run(built(make, with_rules(*rules, recorder)), rounds=1)[-1]
    r = np.array(SIZES) / sum(SIZES)
    local = np.array([plain_losses(make, end.w, end.buffers) for _, _, end in recorder.ends]).T
    total = float(r @ plain_losses(make, state.w, state.buffers))
    assert found.local == pytest.approx(float(r @ np.diag(local)), abs=1e-10)
    assert found.shift_signed == pytest.approx(float(r @ local @ r - r @ np.diag(local)), abs=1e-10)
    assert found.local + found.shift_signed + found.aggregation_signed == pytest.approx(total, abs=1e-10)
    assert found.shift > 1e-3
    assert found.aggregation > 1e-3


def test_both_aggregations_have_the_same_local_models() -> None:
    """Each aggregated model is that of a run of its own; local loss and shift do not depend on it."""
    principal = Principal(proportion=0.8)
    found = one_round(built(mlp, {}), {"mean": MeanDirection(), "principal": principal})
    assert list(found) == ["mean", "principal"]
    assert found["mean"].local == found["principal"].local
    assert found["mean"].shift_signed == found["principal"].shift_signed
    r = np.array(SIZES) / sum(SIZES)
    for name, direction in (("mean", MeanDirection()), ("principal", principal)):
        state = run(built(mlp, with_rules(direction=direction)), rounds=1)[-1]
        total = float(r @ plain_losses(mlp, state.w, state.buffers))
        assert found[name].total == pytest.approx(total, abs=1e-10)
    assert found["mean"].total != pytest.approx(found["principal"].total, abs=1e-4)


def test_all_clients_take_part() -> None:
    """Whatever the schedule says."""
    whole = one_round(built(mlp, {}), {"mean": MeanDirection()})
    few = one_round(built(mlp, {}, clients_per_round=1), {"mean": MeanDirection()})
    assert few == whole


def test_client_losses_by_hand() -> None:
    """Zero weights: every class has probability 1/3, so ln 3 everywhere; a client without samples counts as 0."""
    empty = problem_of([np.ones((4, 6)), np.ones((0, 6))], [np.array([0, 1, 2, 0]), np.zeros(0, int)], 3)
    model = federation(empty, {}, mlp(), w0=np.zeros(6 * 8 + 8 + 8 * 3 + 3))
    state = model.initial_state()
    assert client_losses(model, state.w, state.buffers).tolist() == pytest.approx([np.log(3), 0], abs=1e-15)


# The experiment --------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "alphas": [100, 0.1],
    "seeds": 2,
    "lam": 0.03,
    "proportion": 0.8,
    "settings": {
        "dataset": {"name": "digits_retina", "options": {"train_counts": 60, "test_counts": 20}},
        "model": "tiny_cnn",
        "partition": {"name": "dirichlet", "clients": 3},
        "train": {"rounds": 1, "epochs": 3, "batch_size": 10, "lr": 0.1},
    },
}


def test_the_settings_of_the_figure() -> None:
    """Section 3.3 and its neighbours: five alphas, lambda, L, five clients, one epoch."""
    options = LossDecompositionOptions().experiment
    assert options.alphas == (100, 10, 1, 0.1, 0.01)
    assert (options.seeds, options.lam, options.proportion) == (3, 0.03, 0.8)
    for preset in ("quick", "small"):
        for alpha, config in configurations(
            LossDecompositionOptions(preset=preset).experiment, preset, {}
        ).items():
            assert (config.partition.parameters["alpha"], config.partition.parameters["clients"]) == (
                alpha,
                5,
            )
            assert (config.train.epochs, config.train.clients_per_round) == (1, None)
            assert (config.train.momentum, config.train.weight_decay) == (0.5, 0.0005)


def test_measured_rows(tmp_path: Path) -> None:
    """Three lines for each alpha and seed; the identity holds; aggregations share their local models."""
    data = measure(Experiment.of(TINY), "quick", {}, tmp_path)
    assert list(data["alpha"].unique()) == [100, 0.1]
    assert len(data) == 2 * 2 * 3
    total = data["local_loss"] + data["shift_signed"] + data["aggregation_signed"]
    np.testing.assert_allclose(total, data["global_loss"], rtol=0, atol=1e-10)
    assert (data["shift_loss"] == data["shift_signed"].abs()).all()
    assert (data["aggregation_loss"] == data["aggregation_signed"].abs()).all()
    for _, part in data.groupby(["alpha", "seed"]):
        mean, principal, margin = (part.iloc[i] for i in range(3))
        assert [tuple(row[["training", "aggregation"]]) for row in (mean, principal, margin)] == [
            ("naive", "mean"), ("naive", "principal"), ("margin", "mean"),
        ]  # fmt: skip
        assert (mean[["local_loss", "shift_loss"]] == principal[["local_loss", "shift_loss"]]).all()
        assert mean["aggregation_loss"] != principal["aggregation_loss"]
        assert mean["local_loss"] != margin["local_loss"]
    seeds = data[(data["training"] == "naive") & (data["aggregation"] == "mean")]
    assert seeds["local_loss"].is_unique


def test_without_margin_both_trainings_are_the_same(tmp_path: Path) -> None:
    options = Experiment.of({**TINY, "lam": 0, "seeds": 1, "alphas": [1]})
    data = measure(options, "quick", {}, tmp_path)
    naive, _, margin = (data.iloc[i].drop(["training", "aggregation"]) for i in range(3))
    assert (naive == margin).all()


def test_summary_by_hand() -> None:
    """Means and sample standard deviations over seeds: of 1 and 3 they are 2 and sqrt 2."""
    rows = [(9.0, s, "naive", "mean", v, v, -v, v, 10 * v, 5 * v) for s, v in enumerate((1.0, 3.0))]
    columns = ["alpha", "seed", "training", "aggregation", "local_loss", "shift_signed", "aggregation_signed",
               "shift_loss", "aggregation_loss", "global_loss"]  # fmt: skip
    found = summary(pd.DataFrame(rows, columns=columns))
    assert found.to_dict("records") == [
        {
            "alpha": 9.0, "training": "naive", "aggregation": "mean", "seeds": 2, "local_loss": 2.0, "shift_loss": 2.0,
            "shift_loss_sd": pytest.approx(np.sqrt(2)), "aggregation_loss": 20.0,
            "aggregation_loss_sd": pytest.approx(10 * np.sqrt(2)), "global_loss": 10.0,
        }
    ]  # fmt: skip


# Command ---------------------------------------------------------------------------------------------------------


def test_command(tmp_path: Path) -> None:
    words = ["preset=quick", "alphas=100,0.5", "seeds=1", "clients=3", f"results={tmp_path}"]
    assert main(["analyse", "loss-decomposition", *words]) == 0
    stem = tmp_path / "tables" / "quick" / "fedld_loss_decomposition"
    table = pd.read_csv(stem.with_suffix(".csv"))
    assert list(table["alpha"]) == [100] * 3 + [0.5] * 3
    assert list(table["training"]) == ["naive", "naive", "margin"] * 2
    text = stem.with_suffix(".md").read_text()
    assert "digits in place of Retina; tiny_mlp; 3 clients, 1 epoch in batches of 16" in text
    assert "lambda 0.03, L = 0.8 m" in text
    assert stem.with_suffix(".tex").exists()


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("preset=quik", "quick"),
        ("alphas=1,x", "alphas.1"),
        ("lam=-1", "lam"),
        ("alpha=1", "alphas"),
    ],
)
def test_mistakes(word: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "loss-decomposition", word, f"results={tmp_path / 'r'}"]) == 2
    assert key in capsys.readouterr().err


def test_a_diverged_round_says_where(tmp_path: Path) -> None:
    settings = {**TINY["settings"], "train": {**TINY["settings"]["train"], "lr": 1e30}}
    options = Experiment.of({**TINY, "settings": settings, "alphas": [100]})
    with pytest.raises(ConfigError, match=r"alpha 100, seed 0: .*client 0"):
        measure(options, "quick", {}, tmp_path)


# Drawing -----------------------------------------------------------------------------------------------------------


def test_four_curves() -> None:
    """What is drawn: values, spread, colours and lines, for made-up numbers."""
    values = {
        ("naive", "mean"): (4.0, 3.0),
        ("naive", "principal"): (4.0, 2.0),
        ("margin", "mean"): (1.0, 0.5),
    }
    rows = [
        (alpha, seed, training, aggregation, shift * scale + seed, change * scale + seed)
        for alpha, scale in ((100.0, 1.0), (0.1, 2.0))
        for seed in (-1, 1)
        for (training, aggregation), (shift, change) in values.items()
    ]
    columns = ["alpha", "seed", "training", "aggregation", "shift_loss", "aggregation_loss"]
    _, (axis,) = panels(1, 1)
    draw(axis, pd.DataFrame(rows, columns=columns))
    expected = {
        "distribution shift loss, naive training": (4.0, "firebrick", "--"),
        "distribution shift loss, margin control": (1.0, "firebrick", "-"),
        "aggregation loss, plain mean": (3.0, "steelblue", "--"),
        "aggregation loss, principal gradients": (2.0, "steelblue", "-"),
    }
    assert [container.get_label() for container in axis.containers] == list(expected)
    for container in axis.containers:
        first, colour, style = expected[str(container.get_label())]
        line, _, (bars,) = container
        assert list(line.get_ydata()) == [first, 2 * first]
        assert (to_rgb(line.get_color()), line.get_linestyle()) == (to_rgb(colour), style)
        heights = [float(segment[1, 1] - segment[0, 1]) for segment in bars.get_segments()]
        assert heights == pytest.approx([2 * np.sqrt(2)] * 2)  # the sample standard deviation of -1 and 1
    assert [label.get_text() for label in axis.get_xticklabels()] == ["100", "0.1"]


def test_the_drawing_measures_what_it_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    data = measure(Experiment.of({**TINY, "seeds": 1}), "quick", {}, tmp_path)
    monkeypatch.setattr(analysis, "measure", lambda *words: asked.append(words) or data)
    wanted = request(load_figure(FIGURE_FOLDER / "fedld_figure2.yaml"), tmp_path)
    drawing = loss_decomposition(replace(wanted, seeds=1, extra={"runtime": {"threads": 1}}))
    assert drawing.data is data
    experiment, preset, extra, folder = asked[0]
    assert (experiment.seeds, experiment.alphas[-1], preset) == (1, 0.01, "quick")
    assert (extra, folder) == ({"runtime": {"threads": 1}}, tmp_path / "partitions")
    assert any("digits in place of Retina" in remark for remark in drawing.remarks)
    assert "One seed." in drawing.remarks
