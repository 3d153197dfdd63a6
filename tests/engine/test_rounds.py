"""Rounds: combinations, one client, a stop, memory."""

import copy
import gc
import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from federations import (
    CONF_MOMENTUM,
    Recorder,
    bn_dropout,
    class_run,
    classes,
    mlp,
    near,
    run,
    same,
    seeded,
    stored_order,
    with_rules,
)
from torch import Tensor, nn
from torch.optim.sgd import sgd

from benchmark.config.compose import group_names, load_group
from benchmark.engine.state import Diverged, Interrupted
from benchmark.models.networks import Net
from methods.core.contexts import ClientContext, RoundView, State, Trained
from methods.core.method import build
from methods.core.rules import ClientRule, MethodError
from methods.fedavg import MeanDirection, SizeWeights


@pytest.mark.slow
def test_every_combination_runs() -> None:
    """The client rules of each method with the server of each other; what is refused is refused by name."""
    methods = [load_group("method", name) for name in group_names("method")]
    clients = {tuple(method["client"]): method for method in methods}.values()
    servers = {str(method["server"]): method["server"] for method in methods}.values()
    ran = 0
    for client, server in itertools.product(clients, servers):
        try:
            method = build(client | {"server": server})
        except MethodError as refused:
            assert "needs" in str(refused)
            continue
        first, state = run(class_run(method, problem=classes((3, 2)), lr=0.02, epochs=1), rounds=1)
        moves = "local" not in client["client"]  # where every client is alone the global model stays
        assert bool(torch.isfinite(state.w).all()) and torch.equal(first.w, state.w) != moves
        ran += 1
    assert ran > len(clients) * len(servers) / 2


# One client -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_one_client_is_sgd(momentum: float, weight_decay: float) -> None:
    """An independent loop with the step of torch.optim.SGD, whose momentum starts afresh in every round.

    (Its function, not its class: the class imports torch's compiler, which takes seconds.)
    """
    problem = classes((10,))
    options = {"momentum": momentum, "weight_decay": weight_decay}
    model_ = class_run({}, problem=problem, order=stored_order, **options)
    net = seeded(mlp, 0)
    parameters = list(net.parameters())
    for _ in range(3):
        buffers: list[Tensor | None] = [None] * len(parameters)
        for start in [0, 4, 8] * 2:
            part = slice(start, start + 4)
            loss = F.cross_entropy(net(problem.images[part]), problem.labels[part])
            gradients = list(torch.autograd.grad(loss, parameters))
            with torch.no_grad():
                sgd(
                    parameters, gradients, buffers, **options,
                    lr=0.1, dampening=0.0, nesterov=False, maximize=False, foreach=False,
                )  # fmt: skip
    expected = torch.cat([p.detach().flatten() for p in net.parameters()])
    near(run(model_)[-1].w, expected, 1e-12)


def test_train_loss_is_the_mean_cross_entropy_over_samples_weighted_by_size() -> None:
    """Rate 0: the loss is that of the start, over 9 + 5 + 12 + 7 samples."""
    model_ = class_run({}, lr=0.0)
    problem = model_.problem
    with torch.no_grad():
        expected = F.cross_entropy(model_.model.net(problem.images), problem.labels)
    state, report = model_.run_round(model_.initial_state())
    assert report.train_loss == pytest.approx(float(expected), abs=1e-12)
    assert report.clients == (0, 1, 2, 3)
    assert report.weights == pytest.approx((9 / 33, 5 / 33, 12 / 33, 7 / 33))
    assert state.round == 1


# A stop ---------------------------------------------------------------------------------------------------------


def test_stop_between_clients_leaves_the_state_intact() -> None:
    """All kinds of state: of clients and server, personal groups, local statistics, server momentum."""
    config = {"client": {"scaffold": {}, "fedbn": {}}, "prediction": {"name": "personal"}}
    method = build(config | {"server": {"optimizer": CONF_MOMENTUM}})
    whole = run(class_run(method, net=bn_dropout))
    asked = itertools.count()
    # Four clients a round: the sixth question comes before the second client of the second round.
    stopped = replace(class_run(method, net=bn_dropout), stop=lambda: next(asked) == 5)
    state, _ = stopped.run_round(stopped.initial_state())
    before = copy.deepcopy(state)
    with pytest.raises(Interrupted):
        stopped.run_round(state)
    assert same(state, before)
    assert same(run(stopped, state, rounds=2)[-1], whole[-1])


# Divergence -----------------------------------------------------------------------------------------------------


class Sick(ClientRule):
    """Clients 1 and 2 have NaN in their loss, their model or their payload, or a rule that fails because of NaN."""

    where: str
    reducers = {"payload": "sum"}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        if self.where == "loss":
            g.zero_()  # w stays as it is
        if self.where in ("model", "failure") and ctx.client in (1, 2):
            g.fill_(float("nan"))

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        if self.where == "failure" and trained.w.isnan().any():
            raise ValueError("array must not contain NaNs")
        sick = self.where in ("loss", "payload") and ctx.client in (1, 2)
        return {"client": ctx.client}, {"payload": torch.tensor([0.0, float("nan") if sick else 1.0])}


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("loss", "training loss of client 1"),
        ("model", "update of client 1"),
        ("payload", "update of client 1"),
        ("failure", "update of client 1"),
    ],
)
def test_the_first_client_that_diverges_is_named_and_nothing_of_its_round_is_kept(
    where: str, what: str
) -> None:
    problem = classes()
    sick = class_run(with_rules(Sick(where=where)), problem=problem)
    first = sick.initial_state()
    before = copy.deepcopy(first)
    if where == "loss":
        problem.images[9:] = float("nan")
    with pytest.raises(Diverged) as raised:
        sick.run_round(first)
    assert str(raised.value) == f"round 0: the {what} is not finite (NaN or infinity)"
    assert same(first, before)


# Memory ---------------------------------------------------------------------------------------------------------


class SeesAll(MeanDirection):
    """The mean, from all updates at once."""

    streams = False


class AfterTraining(SizeWeights):
    """Weights by size, known after training only."""

    needs_training = True


def test_streaming_mean_equals_the_mean_of_a_matrix() -> None:
    plain = with_rules(config={"client": {"fedprox": {"mu": 0.1}}})
    assert not plain.keeps_updates(0)
    expected = run(class_run(plain))[-1].w
    for slots in ({"direction": SeesAll()}, {"weights": AfterTraining()}):
        method = replace(plain, **slots)
        assert method.keeps_updates(0)
        assert torch.equal(run(class_run(method))[-1].w, expected)


def held_bytes() -> int:
    """Bytes of all tensors that are alive, each storage once."""
    gc.collect()  # what other tests left in cycles must not go between two looks
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (Tensor, nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def wide() -> Net:
    return Net(nn.Sequential(nn.Linear(6, 512), nn.Tanh()), nn.Linear(512, 3), 512).double()


def test_a_stateless_method_holds_no_more_for_more_clients() -> None:
    """Measured between clients; the model has 5,123 parameters of 8 bytes, so one kept update would show."""
    problem = classes((2,) * 40)
    seen: dict[int, int] = {}
    asked = itertools.count()

    def look() -> bool:
        number = next(asked)
        if number in (2, 39):  # near the start and at the end of the first round
            seen[number] = held_bytes()
        return False

    method = {"client": {"fedprox": {"mu": 0.1}}, "server": {"optimizer": CONF_MOMENTUM}}
    model_ = replace(class_run(method, problem=problem, net=wide, epochs=1, momentum=0.9), stop=look)
    states = run(model_, rounds=2)
    assert seen[2] > 5123 * 8
    assert abs(seen[39] - seen[2]) < 0.5 * 5123 * 8
    assert states[-1].clients == {}
    assert all(rule == {} for rule in states[-1].rules.values())


def test_what_is_kept_is_a_copy() -> None:
    """Client state and payloads are given as views of the engine's vectors; the next client must not change them."""

    class Keep(ClientRule):
        key = "keep"
        reducers = {"w": "keep", "sum": "sum"}

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            nested = {"w": trained.w, "update": trained.update, "buffers": trained.buffers}
            return {"deep": nested}, {"w": trained.w, "sum": trained.update}

        def receive(self, server: State, view: RoundView) -> State:
            return view.payload

    log = Recorder()
    model_ = class_run(with_rules(Keep(), log), net=bn_dropout)
    state = run(model_, rounds=1)[-1]
    run(model_, state, rounds=1)
    ends = {client: end for t, client, end in log.ends if t == 0}
    for k, end in ends.items():
        kept = state.clients[k]["rules"]["keep"]["deep"]
        assert same(kept, {"w": end.w, "update": end.update, "buffers": end.buffers})
        assert torch.equal(state.rules["keep"]["w"][k], end.w)
    total = sum((end.update for end in ends.values()), torch.zeros_like(state.w))
    near(state.rules["keep"]["sum"], total, 1e-15)
