"""FedLD's Eq. 2 and Fig. 2: the identity, the terms against loops and against separate runs, command and drawing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import Recorder, federation, mlp, problem_of, run, with_rules
from torch import Tensor, nn

from benchmark.engine.state import Problem
from benchmark.models.networks import Net
from benchmark.papers.loss_decomposition import (
    Experiment,
    decompose,
    measure,
    one_round,
)
from methods.fedavg import MeanDirection
from methods.fedld import Margin, Principal


def test_terms_by_hand() -> None:
    """Two clients: w_1 gains 2 elsewhere, w_2 loses 4: with r = 1/2 the shift is (2/2 - 4/2)/2 = -1/2.

    L(w_1) = 2, L(w_2) = 3, L(w) = 1: aggregation 1 - 5/2 = -3/2, and 3 - 1/2 - 3/2 = 1.
    """
    local, aggregated = np.array([[1.0, 1.0], [3.0, 5.0]]), np.array([0.5, 1.5])
    assert decompose(local, aggregated, np.array([0.5, 0.5])) == (3.0, -0.5, -1.5)
    assert decompose(np.array([[2.0]]), np.array([2.0]), np.ones(1)) == (2.0, 0.0, 0.0)


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


RUN = {
    "dataset": {"name": "digits_retina", "options": {"train_counts": 60, "test_counts": 20}},
    "model": "tiny_mlp",
    "partition": {"name": "dirichlet", "clients": 3},
    "train": {"rounds": 1, "epochs": 3, "batch_size": 10, "lr": 0.1},
}
TINY: dict[str, Any] = {"alphas": [100, 0.1], "seeds": 2, "lam": 0.03, "proportion": 0.8, "settings": RUN}


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
