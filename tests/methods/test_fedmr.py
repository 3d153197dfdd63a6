"""FedMR against stored losses, loops over classes and samples, and rounds worked out beside the engine."""

import itertools
from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import Recorder, bn_dropout, federation, mlp, near, one_parameter, ones, run
from fedmr_cases import clients, looped_inter, looped_intra, start

from benchmark.engine.federation import FederatedRun
from methods.core.build import build
from methods.core.errors import MethodError
from methods.fedmr import BatchWeights, FedMR


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
    log, problem = Recorder.new(), clients()
    options: dict[str, Any] = {"net": bn_dropout, "rounds": 2, "augment": lambda x: x + 1.0}
    model = start(problem, {"mu1": 0.001, "mu2": 0.1}, log, **options)
    states = run(model)
    for t in (0, 1):
        server = states[t + 1].rules["fedmr"]
        assert server["known"].tolist() == [True] * 3
        for c, mean in prototypes(model, log, t, range(4)).items():
            near(server["g"][c], mean)
    # The pass is made with the network that has just trained: no second one, and no trace in what is uploaded.
    assert model.clients.pool._spare == []
    first = run(start(problem, {"mu1": 0.001, "mu2": 0}, **options), rounds=1)[-1]
    assert torch.equal(first.w, states[1].w) and torch.equal(first.buffers, states[1].buffers)


def test_one_step_of_each_round() -> None:
    """Full batches, one step, no momentum: w_k = w - lr grad(CE + mu1 intra + mu2 inter), with the prototypes of the
    round before; in round 0 there are none. The gradients come from the loops above."""
    problem, lr, mu1, mu2 = clients(), 0.1, 0.01, 2.0
    model = start(problem, {"mu1": mu1, "mu2": mu2}, lr=lr, momentum=0.0, batch_size=100, rounds=3)
    states = run(model)
    net = deepcopy(model.model.net)
    total, inter = sum(len(c) for c in problem.clients), []
    for before, after in itertools.pairwise(states):
        expected = torch.zeros_like(before.w)
        for k in range(4):
            own = torch.from_numpy(problem.clients[k])
            x, y = problem.images[own], problem.labels[own]
            w = before.w.clone().requires_grad_()
            values = {entry.name: entry.view(w) for entry in model.layout.entries}
            z = torch.func.functional_call(
                net.body, {n[5:]: v for n, v in values.items() if n[:5] == "body."}, x
            )
            logits = F.linear(z, values["classifier.weight"], values["classifier.bias"])
            loss = F.cross_entropy(logits, y) + mu1 * looped_intra(z, y, 1e-8)
            if before.round:
                server = before.rules["fedmr"]
                inter.append(looped_inter(z, y, server["g"], {0, 1, 2}))
                loss = loss + mu2 * inter[-1]
            gradient = torch.autograd.grad(loss, w)[0]
            expected += len(own) / total * (before.w - lr * gradient)
        near(after.w, expected.detach())
    assert min(float(value.detach()) for value in inter) >= 0
    assert max(float(value.detach()) for value in inter) > 1e-3


def test_absent_classes_keep_their_prototype() -> None:
    """Chosen one by one: class 2 is known once client 3 was there, and stays when others come; nothing is averaged
    with what is old."""
    config = {"client": {"fedmr": {"mu1": 0.0, "mu2": 0.1}}, "selection": {"name": "round_robin"}}
    model = federation(clients(), build(config), mlp(), rounds=8, clients_per_round=1, batch_size=100)
    states, seen = [model.initial_state()], []
    for _ in range(8):
        state, report = model.step(states[-1])
        states.append(state)
        seen.append(report.clients[0])
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
    log = Recorder.new()
    model = start(clients(), {"mu1": 0.0, "mu2": 0.5, "submit": 0.5}, log, rounds=3)
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


@pytest.mark.parametrize(
    ("share", "clients_", "expected"), [(0.5, 5, 3), (0.8, 10, 8), (0.07, 100, 7), (0.01, 4, 1), (1.0, 4, 4)]
)
def test_how_many_submit(share: float, clients_: int, expected: int) -> None:
    drawn = set()
    for seed in range(9):
        setup = SimpleNamespace(
            feature_dim=3, num_classes=2, num_clients=clients_, w=torch.zeros(1),
            generators=lambda purpose, seed=seed: np.random.default_rng(seed),
        )  # fmt: skip
        drawn.add(tuple(FedMR(mu1=0, mu2=1, submit=share).setup(setup)["submitters"]))
    assert all(len(set(ids)) == expected and set(ids) <= set(range(clients_)) for ids in drawn)
    assert len(drawn) > 1 or expected == clients_


def test_what_is_sent() -> None:
    """C (h + 1) = 27 numbers for each of 4 clients and way (the 1: counts up, which classes are known down), nothing
    down in round 0; a forward pass over 44 samples. Half submit: half of it, and a flag down. Intra only: nothing."""

    def costs(**parameters: Any) -> list[tuple[int, int, int]]:
        model = start(clients(), {"mu1": 0.01, "mu2": 0.1} | parameters, rounds=2)
        state, found = model.initial_state(), []
        for _ in range(2):
            state, report = model.step(state)
            found.append((report.cost.scalars_up, report.cost.scalars_down, report.cost.forward))
        return found

    assert costs() == [(108, 0, 44), (108, 108, 44)]
    assert costs(mu1=0.0) == costs()
    assert costs(mu2=0.0) == [(0, 0, 0), (0, 0, 0)]
    half = costs(submit=0.5)
    assert [c[:2] for c in half] == [(54, 4), (54, 112)]
    assert 0 < half[0][2] < 44


def test_weights_by_batches() -> None:
    """12, 9, 16, 7 samples in batches of 5 are 3, 2, 4, 2; without a step at any client samples count."""
    server = {"weights": {"name": "batches"}}
    model = federation(clients(), build({"server": server}), mlp(), rounds=1, batch_size=5, epochs=2)
    assert model.step(model.initial_state())[1].weights == pytest.approx([3 / 11, 2 / 11, 4 / 11, 2 / 11])
    idle = SimpleNamespace(steps=np.zeros(2), sizes=np.array([30.0, 70.0]))
    assert BatchWeights().weights(idle).tolist() == [0.3, 0.7]


def test_one_feature_cannot_be_decorrelated() -> None:
    def of(mu1: float) -> FederatedRun:
        method = build({"client": {"fedmr": {"mu1": mu1, "mu2": 0.1}}})
        return federation(ones(2, 2), method, one_parameter(), lr=0.1, rounds=1)

    with pytest.raises(MethodError, match=r"makes 1 per image.*model=.*method\.client\.fedmr\.mu1 to 0"):
        of(0.1).initial_state()
    assert torch.isfinite(run(of(0.0))[-1].w).all()
