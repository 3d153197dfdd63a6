"""FedLD's Eq. 2 and Fig. 2: the identity, the terms against loops and against separate runs, command and drawing."""

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
from benchmark.analyses.loss_decomposition import (
    SETTINGS,
    Experiment,
    client_losses,
    decompose,
    measure,
    one_round,
    summary,
)
from benchmark.engine.state import Problem
from benchmark.errors import ConfigError
from benchmark.experiments.figures import load_figure
from benchmark.figures.analyses import draw, loss_decomposition
from benchmark.figures.registry import panels
from benchmark.models.networks import Net
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal

# Eq. 2 ---------------------------------------------------------------------------------------------------------


def test_terms_by_hand() -> None:
    """Two clients: w_1 gains 2 elsewhere, w_2 loses 4: with r = 1/2 the shift is (2/2 - 4/2)/2 = -1/2.

    L(w_1) = 2, L(w_2) = 3, L(w) = 1: aggregation 1 - 5/2 = -3/2, and 3 - 1/2 - 3/2 = 1.
    """
    local, aggregated = np.array([[1.0, 1.0], [3.0, 5.0]]), np.array([0.5, 1.5])
    assert decompose(local, aggregated, np.array([0.5, 0.5])) == (3.0, -0.5, -1.5)
    assert decompose(np.array([[2.0]]), np.array([2.0]), np.ones(1)) == (2.0, 0.0, 0.0)


# One round of a federation in float64 --------------------------------------------------------------------------

SIZES = (7, 12, 20)
RULES = {"mean": MeanDirection(), "principal": Principal(proportion=0.8)}


def problem() -> Problem:
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
    return federation(problem(), method, net, lr=0.3, batch_size=4, epochs=2, rounds=5, **options)


def plain_losses(make: Any, w: Tensor, buffers: Tensor) -> list[float]:
    """L_j(w) in plain torch: parameters and running statistics set one by one, evaluation mode, all samples at once."""
    net = make()
    nn.utils.vector_to_parameters(w, net.parameters())
    place = 0
    for buffer in (b for b in net.buffers() if b.dtype.is_floating_point):
        buffer.copy_(buffers[place : place + buffer.numel()])
        place += buffer.numel()
    net.eval()
    data = problem()
    with torch.no_grad():
        return [float(F.cross_entropy(net(data.images[c]), data.labels[c])) for c in data.clients]


@pytest.mark.parametrize("make", [mlp, with_batch_norm])
@pytest.mark.parametrize("rules", [(), (Margin(lam=0.5),)])
def test_decomposition_of_a_real_round(make: Any, rules: tuple[Margin, ...]) -> None:
    """Against models caught by another rule in other runs of the same round, and losses in plain torch.

    The cross-entropy is plain also after training with the margin; each local model has its own BatchNorm statistics,
    the aggregated one the averages. Local loss and shift do not depend on the aggregation. All clients take part,
    whatever the schedule says.
    """
    both = one_round(built(make, with_rules(*rules), clients_per_round=1), RULES)
    r = np.array(SIZES) / sum(SIZES)
    for name, direction in RULES.items():
        recorder, terms = Recorder(), both[name]
        state = run(built(make, with_rules(*rules, recorder, direction=direction)), rounds=1)[-1]
        local = np.array([plain_losses(make, end.w, end.buffers) for _, _, end in recorder.ends]).T
        total = float(r @ plain_losses(make, state.w, state.buffers))
        local_loss = float(r @ np.diag(local))
        expected = (local_loss, float(r @ local @ r) - local_loss, total - float(r @ local @ r))
        assert terms == pytest.approx(expected, abs=1e-10)
        assert min(abs(terms.shift_signed), abs(terms.aggregation_signed)) > 1e-3
    assert both["mean"][:2] == both["principal"][:2]
    assert sum(both["mean"]) != pytest.approx(sum(both["principal"]), abs=1e-4)


def test_client_losses_by_hand() -> None:
    """Zero weights: every class has probability 1/3, so ln 3 everywhere; a client without samples counts as 0."""
    empty = problem_of([np.ones((4, 6)), np.ones((0, 6))], [np.array([0, 1, 2, 0]), np.zeros(0, int)], 3)
    model = federation(empty, {}, mlp(), w0=np.zeros(6 * 8 + 8 + 8 * 3 + 3))
    state = model.initial_state()
    assert client_losses(model, state.w, state.buffers).tolist() == pytest.approx([np.log(3), 0], abs=1e-15)


# The experiment --------------------------------------------------------------------------------------------------

RUN = {
    "dataset": {"name": "digits_retina", "options": {"train_counts": 60, "test_counts": 20}},
    "model": "tiny_mlp",
    "partition": {"name": "dirichlet", "clients": 3},
    "train": {"rounds": 1, "epochs": 3, "batch_size": 10, "lr": 0.1},
}
TINY: dict[str, Any] = {"alphas": [100, 0.1], "seeds": 2, "lam": 0.03, "proportion": 0.8, "settings": RUN}


@pytest.mark.parametrize("preset", ["quick", "small"])
def test_the_settings_of_the_figure(preset: str) -> None:
    """Section 3.3 and its neighbours: five alphas, lambda, L, five clients, one epoch."""
    experiment = Experiment.of(load_figure(SETTINGS).settings(preset))
    assert experiment.alphas == (100, 10, 1, 0.1, 0.01)
    assert (experiment.seeds, experiment.lam, experiment.proportion) == (3, 0.03, 0.8)
    config = experiment.configuration(0.1, preset, {})
    assert config.partition.parameters.items() >= {"alpha": 0.1, "clients": 5}.items()
    assert (config.train.epochs, config.train.clients_per_round) == (1, None)
    assert (config.train.momentum, config.train.weight_decay) == (0.5, 5e-4)


def test_measured_rows(tmp_path: Path) -> None:
    """Three lines for each alpha and seed, of other draws. Without a margin both trainings are the same."""
    data = measure(Experiment.of(TINY), "quick", {})
    ways = [("naive", "mean"), ("naive", "principal"), ("margin", "mean")]
    keys = [(alpha, seed, *way) for alpha in (100, 0.1) for seed in (0, 1) for way in ways]
    assert list(data[["alpha", "seed", "training", "aggregation"]].itertuples(index=False, name=None)) == keys
    total = data[["local_loss", "shift_signed", "aggregation_signed"]].sum(axis=1)
    np.testing.assert_allclose(total, data["global_loss"], rtol=0, atol=1e-10)
    assert (data[["shift_loss", "aggregation_loss"]] >= 0).all(axis=None)
    # The two aggregations of the naive training share their local models.
    assert data["local_loss"].nunique() == 8
    data = measure(Experiment.of({**TINY, "lam": 0, "alphas": [1]}, 1), "quick", {})
    naive, _, margin = (data.iloc[i].drop(["training", "aggregation"]) for i in range(3))
    assert (naive == margin).all()


def test_summary_by_hand() -> None:
    """Means and sample standard deviations over seeds: of 1 and 3 they are 2 and sqrt 2."""
    keys = {"alpha": 9.0, "training": "naive", "aggregation": "mean"}
    terms = {"local_loss": 1, "shift_loss": 1, "aggregation_loss": 10, "global_loss": 5}
    rows = [keys | {term: scale * v for term, scale in terms.items()} for v in (1.0, 3.0)]
    (line,) = summary(pd.DataFrame(rows)).to_dict("records")
    spread = {"shift_loss_sd": pytest.approx(2**0.5), "aggregation_loss_sd": pytest.approx(10 * 2**0.5)}
    assert line == keys | {"seeds": 2} | {term: 2.0 * scale for term, scale in terms.items()} | spread


def test_command_and_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["analyse", "loss-decomposition", f"results={tmp_path}"]
    assert main([*command, "seeds=1"]) == 0
    stem = tmp_path / "tables" / "quick" / "fedld_loss_decomposition"
    alphas = [alpha for alpha in (100, 10, 1, 0.1, 0.01) for _ in range(3)]
    assert list(pd.read_csv(stem.with_suffix(".csv"))["alpha"]) == alphas
    text = stem.with_suffix(".md").read_text()
    assert "digits in place of Retina; tiny_mlp; clients 5, epochs 1, batches of 16" in text
    assert "lambda 0.03, L = 0.8 m" in text
    for word, key in ("preset=quik", "quick"), ("seeds=0", "seeds"):
        assert main([*command, word]) == 2
        assert key in capsys.readouterr().err


def test_a_diverged_round_says_where(tmp_path: Path) -> None:
    settings = RUN | {"train": {"rounds": 1, "epochs": 3, "batch_size": 10, "lr": 1e30}}
    options = Experiment.of({**TINY, "settings": settings, "alphas": [100]})
    with pytest.raises(ConfigError, match=r"alpha 100, seed 0: .*client 0"):
        measure(options, "quick", {})


# Drawing -----------------------------------------------------------------------------------------------------------


def test_four_curves() -> None:
    """What is drawn: values, spread, colours and lines, for made-up numbers; dotted: the means with their signs."""
    values = [("naive", "mean", 4.0, 3.0), ("naive", "principal", 4.0, 2.0), ("margin", "mean", 1.0, 0.5)]
    rows = [
        (alpha, seed, *way, shift * scale + seed, change * scale + seed)
        for alpha, scale in ((100.0, 1.0), (0.1, 2.0))
        for seed in (-1, 1)
        for *way, shift, change in values
    ]
    columns = ["alpha", "seed", "training", "aggregation", "shift_loss", "aggregation_loss"]
    _, (axis,) = panels(1, 1)
    data = pd.DataFrame(rows, columns=columns)
    draw(axis, data.assign(shift_signed=data["shift_loss"], aggregation_signed=-data["aggregation_loss"]))
    red, blue = "firebrick", "steelblue"
    expected = [(4.0, red, "--"), (1.0, red, "-"), (3.0, blue, "--"), (2.0, blue, "-")]
    for (line, _, (bars,)), (first, colour, style) in zip(axis.containers, expected, strict=True):
        assert list(line.get_ydata()) == [first, 2 * first]
        assert (to_rgb(line.get_color()), line.get_linestyle()) == (to_rgb(colour), style)
        heights = [float(segment[1, 1] - segment[0, 1]) for segment in bars.get_segments()]
        assert heights == pytest.approx([2 * np.sqrt(2)] * 2)  # the sample standard deviation of -1 and 1
    dotted = [list(line.get_ydata()) for line in axis.lines if line.get_linestyle() == ":"]
    assert dotted == [[4, 8], [1, 2], [-3, -6], [-2, -4]] and axis.get_ylim()[0] < -6
    assert [label.get_text() for label in axis.get_xticklabels()] == ["100", "0.1"]


def test_the_drawing_measures_what_it_draws(tmp_path: Path) -> None:
    drawing = loss_decomposition(replace(request(load_figure(SETTINGS), tmp_path, **TINY), seeds=1))
    assert drawing.data.equals(measure(Experiment.of(TINY, 1), "quick", {}))
    assert "One seed." in drawing.remarks and "digits in place of Retina; tiny_mlp" in drawing.remarks[2]
