"""FedMR: its losses beside stored numbers, loops from the text and arithmetic by hand; its prototypes in rounds."""

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    bn_dropout,
    federation,
    mlp,
    near,
    problem_of,
    reported,
    run,
    seeded,
    with_rules,
)
from golden_cases import stored
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Problem
from methods.core.contexts import Batch
from methods.core.method import build
from methods.fedmr import FedMR, inter_class, intra_class
from methods.shared import fast


def clients() -> Problem:
    """Four clients of 12, 9, 16 and 7 samples, six inputs; class 2 is at client 3 alone, client 1 has one class."""
    rng = np.random.default_rng(0)
    labels = [[0, 1] * 6, [1] * 9, [0, 1, 0, 0] * 4, [2, 0, 2, 2, 0, 2, 2]]
    return problem_of([rng.normal(size=(len(y), 6)) for y in labels], [np.array(y) for y in labels], 3)


def start(parameters: dict[str, Any], *rules: Any, net: Any = mlp, **options: Any) -> FederatedRun:
    method = with_rules(*rules, config={"client": {"fedmr": parameters}})
    return federation(
        clients(), method, seeded(net, 5), **({"lr": 0.1, "momentum": 0.9, "epochs": 1} | options)
    )


# Losses ----------------------------------------------------------------------------------------------------------


CASES = range(7)


def value_and_gradient(f: Callable[[Tensor], Tensor], z: np.ndarray | Tensor) -> tuple[float, np.ndarray]:
    leaf = torch.as_tensor(z).clone().requires_grad_()
    loss = f(leaf)
    return float(loss.detach()), torch.autograd.grad(loss, leaf)[0].numpy()


def extra(rule: FedMR, z: Tensor, y: Tensor, **received: Any) -> Tensor | float:
    """What the rule adds to the objective for one batch; ``counts``, ``rng`` are the client's."""
    counts, rng = received.pop("counts", None), received.pop("rng", None)
    ctx = SimpleNamespace(received=received, label_counts=counts, generators=lambda purpose: rng)
    ctx.local = rule.begin(ctx)
    loss = rule.loss(ctx, Batch(None, y, z, None, None, None))
    assert loss.ce_weight == 1.0
    return loss.extra


G = stored("fedmr_losses")


def close(found: tuple[float, np.ndarray], name: str, tol: float = 1e-8) -> None:
    loss, gradient = (G[name.format(part)] for part in ("loss", "grad"))
    assert found[0] == pytest.approx(float(loss), rel=tol, abs=1e-12)
    scale = max(float(np.abs(gradient).max()), 1e-4)
    near(found[1], gradient, tol * scale)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("variant", "name"), [("paper", "paper"), ("reference", "code")])
def test_stored_intra(case: int, variant: Any, name: str) -> None:
    """The paper's form, and that of the authors' code, whose eps is the default."""
    z, y = G[f"c{case}_z"], torch.from_numpy(G[f"c{case}_y"])
    eps = {} if name == "code" else {"eps": float(G[f"c{case}_eps_paper"])}
    rule = FedMR(mu1=1, mu2=0, variant=variant, **eps)
    close(value_and_gradient(lambda z: extra(rule, z, y), z), f"c{case}_intra_{{}}_{name}")
    if variant == "paper":
        as_printed = value_and_gradient(lambda z: intra_class(z, y, rule.eps), z)
        close(
            as_printed, f"c{case}_intra_{{}}_{name}", 1e-6
        )  # two samples: its gradient is 0 but for rounding
        in_few_kernels = value_and_gradient(lambda z: fast.intra_class(z, y, rule.eps), z)
        assert in_few_kernels[0] == pytest.approx(as_printed[0], rel=1e-10)
        near(in_few_kernels[1], as_printed[1], 1e-10 * max(1.0, np.abs(as_printed[1]).max()))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("inter_cj", "name"), [("all", "allprotos"), ("batch", "batchCk")])
def test_stored_inter(case: int, inter_cj: Any, name: str) -> None:
    z, y = G[f"c{case}_z"], torch.from_numpy(G[f"c{case}_y"])
    g = torch.from_numpy(G[f"c{case}_protos"])
    rule, known = FedMR(mu1=0, mu2=1, inter_cj=inter_cj), torch.ones(len(g), dtype=torch.bool)
    everywhere = np.ones(len(g))  # the client has a sample of each class: the divisor of the stored numbers
    found = value_and_gradient(lambda z: extra(rule, z, y, g=g, known=known, counts=everywhere), z)
    close(found, f"c{case}_inter_{{}}_{name}_paper")


@pytest.mark.parametrize("case", CASES)
def test_weights_of_the_two_losses(case: int) -> None:
    """Eq. 5 in float32, which the losses keep under autocast, whatever comes in."""
    z, y = torch.from_numpy(G[f"c{case}_z"]).float(), torch.from_numpy(G[f"c{case}_y"])
    g = torch.from_numpy(G[f"c{case}_protos"]).float()
    known = torch.ones(len(g), dtype=torch.bool)
    rule = FedMR(mu1=0.25, mu2=3.0, eps=float(G[f"c{case}_eps_paper"]))
    parts = [G[f"c{case}_{name}_paper"] for name in ("intra_loss", "inter_loss_allprotos")]
    expected = 0.25 * float(parts[0]) + 3.0 * float(parts[1])
    with torch.autocast("cpu", torch.bfloat16):
        found = extra(rule, z, y, g=g, known=known, counts=np.ones(len(g)))
        rounded = extra(rule, z.bfloat16(), y, g=g, known=known, counts=np.ones(len(g)))
    assert found.dtype == rounded.dtype == torch.float32
    assert float(found) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("inter_cj", ["all", "batch", "client"])
@pytest.mark.parametrize("known", [(0, 1, 2, 3, 4, 5), (0, 2, 4), (1,), (), (5, 0)])
def test_inter_is_the_printed_equation(inter_cj: Any, known: tuple[int, ...]) -> None:
    """Six classes; the batch holds 0, 1, 2, the client 0 to 3; P is what has a prototype and ``inter_cj`` admits."""
    rng = np.random.default_rng(7)
    z, y = rng.normal(size=(12, 4)), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    g = torch.from_numpy(rng.normal(size=(6, 4)))
    mask = torch.tensor([c in known for c in range(6)])
    own = ({0, 1, 2} if inter_cj == "batch" else {0, 1, 2, 3}) & set(known)
    admitted = set(known) if inter_cj == "all" else own
    rule, counts = FedMR(mu1=0, mu2=1, inter_cj=inter_cj), np.array([5, 9, 4, 1, 0, 0])
    found = value_and_gradient(lambda z: extra(rule, z, y, g=g, known=mask, counts=counts), z)
    expected = value_and_gradient(lambda z: inter_class(z, y, g, own, admitted), z)
    assert found[0] == pytest.approx(expected[0], rel=1e-12, abs=1e-15)
    near(found[1], expected[1])
    assert (expected[0] > 0) == (len(admitted) > 1 and bool(admitted & {0, 1, 2}))


@pytest.mark.parametrize(("inter_cj", "loss"), [("all", 3.0), ("client", 0.5), ("batch", 0.5)])
def test_inter_is_the_mean_over_its_pairs(inter_cj: Any, loss: float) -> None:
    """Two of ten classes at a client, all have a prototype; the batch has one sample of each of the two.

    On a line, g_c = c; the sample of class 0 stands at 9, that of class 1 at 4. Class 0: 9 - |9 - c| = c for c = 1 to
    9, 45 over nine pairs. Class 1: 3 - |4 - c| = -1, 1, 2, 3, 2, 1, 0, -1, -2 for c = 0, 2 to 9, cut at 0: 9. Together
    54; over |C_k| (|C| - 1) = 18 pairs 3, which over the 90 pairs of all classes was 0.6. With c_j in C_k the pairs are
    (0, 1) with 1 and (1, 0) with 0, over 2.
    """
    g = torch.arange(10.0)[:, None].double()
    z, y, known = (
        torch.tensor([[9.0], [4.0]]).double(),
        torch.tensor([0, 1]),
        torch.ones(10, dtype=torch.bool),
    )
    counts = np.array([5, 7, *[0] * 8])
    rule = FedMR(mu1=0, mu2=1, inter_cj=inter_cj)
    assert float(extra(rule, z, y, g=g, known=known, counts=counts)) == pytest.approx(loss)
    pairs = range(10) if inter_cj == "all" else range(2)
    assert float(inter_class(z, y, g, {0, 1}, pairs)) == pytest.approx(loss)


def test_lite_takes_some_samples_of_each_batch() -> None:
    """5 samples, 2 of them: the inter-class loss is that of one of the 10 pairs, another from batch to batch; the
    intra-class loss is that of all."""
    draw = np.random.default_rng(3)
    z, y = torch.from_numpy(draw.normal(size=(5, 3))), torch.tensor([0, 0, 1, 1, 1])
    g, known = torch.from_numpy(draw.normal(size=(3, 3))), torch.ones(3, dtype=torch.bool)
    pairs = {
        round(float(inter_class(z[list(p)], y[list(p)], g, {0, 1}, {0, 1, 2})), 12)
        for p in itertools.combinations(range(5), 2)
    }
    intra = float(intra_class(z, y, 1e-8))  # of all samples; its values are checked above
    rng = np.random.default_rng(0)
    rule = FedMR(mu1=1.0, mu2=1.0, lite=2)
    counts = np.array([2, 3, 0])
    found = [
        round(float(extra(rule, z, y, g=g, known=known, counts=counts, rng=rng)) - intra, 12)
        for _ in range(40)
    ]
    assert set(found) <= pairs
    assert len(set(found)) > 5


# Rounds ----------------------------------------------------------------------------------------------------------


def prototypes(model: FederatedRun, log: Recorder, round: int, among: Sequence[int]) -> dict[int, np.ndarray]:
    """Class -> mean over all its samples at these clients of the features of the client's own trained model.

    From a copy of the network with the client's values and statistics, in evaluation mode.
    """
    found, net = [], deepcopy(model.model.net)
    for _, k, end in (entry for entry in log.ends if entry[0] == round and entry[1] in among):
        for entry in model.layout.entries:
            net.get_parameter(entry.name).data = entry.view(end.w).clone()
        for entry in model.model.buffer_layout.entries:
            owner, _, leaf = entry.name.rpartition(".")
            net.get_submodule(owner)._buffers[leaf] = entry.view(end.buffers).clone()
        own = torch.from_numpy(model.problem.clients[k])
        with torch.no_grad():
            found.append((net.eval().features(model.problem.images[own]), model.problem.labels[own]))
    z, y = (torch.cat(part) for part in zip(*found, strict=True))
    return {int(c): z[y == c].mean(0).numpy() for c in y.unique()}


def test_prototypes_of_the_trained_local_models() -> None:
    """BatchNorm and dropout: evaluation mode with the client's own statistics, before aggregation, not augmented."""
    log = Recorder()
    options: dict[str, Any] = {"net": bn_dropout, "rounds": 2, "augment": lambda x: x + 1.0}
    model = start({"mu1": 0.001, "mu2": 0.1}, log, **options)
    states = run(model)
    for t in (0, 1):
        server = states[t + 1].rules["fedmr"]
        assert server["known"].tolist() == [True] * 3
        for c, mean in prototypes(model, log, t, range(4)).items():
            near(server["g"][c], mean)
    # The pass leaves no trace in what is uploaded.
    first = run(start({"mu1": 0.001, "mu2": 0}, **options), rounds=1)[-1]
    assert torch.equal(first.w, states[1].w) and torch.equal(first.buffers, states[1].buffers)


def test_absent_classes_keep_their_prototype() -> None:
    """Chosen one by one: class 2 is known once client 3 was there, and stays when others come; nothing is averaged
    with what is old."""
    config = {"client": {"fedmr": {"mu1": 0.0, "mu2": 0.1}}, "selection": {"name": "round_robin"}}
    model = federation(clients(), build(config), mlp(), rounds=8, clients_per_round=1, batch_size=100)
    states, reports = reported(model)
    seen = [report.clients[0] for report in reports]
    holds = {0: {0, 1}, 1: {1}, 2: {0, 1}, 3: {0, 2}}
    assert sorted(seen[:4]) == [0, 1, 2, 3]
    for t, k in enumerate(seen):
        old, new = states[t].rules["fedmr"], states[t + 1].rules["fedmr"]
        known = set().union(*(holds[j] for j in seen[: t + 1]))
        assert new["known"].tolist() == [c in known for c in range(3)]
        for c in range(3):
            assert torch.equal(new["g"][c], old["g"][c]) == (c not in holds[k]), (t, c)


def test_part_of_the_clients_submit() -> None:
    """Drawn once: ceil(f K). A class held by others alone never enters P; everyone receives and uses what there is."""
    log = Recorder()
    model = start({"mu1": 0.0, "mu2": 0.5, "submit": 0.5}, log, rounds=3)
    states = run(model)
    submitters = states[0].rules["fedmr"]["submitters"]
    assert len(submitters) == 2
    assert all(state.rules["fedmr"]["submitters"] == submitters for state in states)
    holds = [{0, 1}, {1}, {0, 1}, {0, 2}]
    known = set().union(*(holds[k] for k in submitters))
    for state in states[1:]:
        assert state.rules["fedmr"]["known"].tolist() == [c in known for c in range(3)]
    for c, mean in prototypes(model, log, 2, submitters).items():
        near(states[3].rules["fedmr"]["g"][c], mean)
