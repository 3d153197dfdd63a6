"""Rounds of a federation: select, train, aggregate, evaluate. A round is a pure function from state to state."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.config.schema import TrainConfig
from benchmark.engine.aggregation import Uploads
from benchmark.engine.clients import ClientSide, Order
from benchmark.engine.evaluation import client_accuracies, evaluate, over_clients
from benchmark.engine.measures import eigenvalue_spread
from benchmark.engine.records import Cost, Record
from benchmark.engine.round_values import RoundValues
from benchmark.engine.state import (
    Diverged,
    FederationState,
    Interrupted,
    Problem,
    RoundReport,
    Schedule,
    map_tensors,
)
from benchmark.engine.training import LoopResult
from benchmark.engine.views import client_pool, server_view
from benchmark.metrics import OwnMetric
from benchmark.models.flat import FlatModel
from methods.core.contexts import Federation, Predictor, RoundView, ServerView, State
from methods.core.method import Method, plain
from methods.core.rules import Rule
from methods.core.vectors import HEAD


@dataclass
class FederatedRun:
    """One federation. `run_round` maps the state before a round to the state after it.

    Attributes:
        order: Replaces the random order in which local samples are visited (for tests with stored batches).
        measures: What to measure of the global model at every evaluation beside its metrics: `eigenvalue_spread`.
        stop: Asked between clients. If it returns true, `Interrupted` is raised.
        state_bytes: Most bytes on the device of what all clients keep between rounds. More are kept in host memory.
        metrics: Metrics of repositories, recorded beside those of every evaluation.
    """

    problem: Problem
    method: Method
    model: FlatModel
    spec: TrainConfig
    schedule: Schedule
    seed: int
    order: Order | None = None
    measures: Sequence[str] = ()
    stop: Callable[[], bool] = lambda: False
    state_bytes: float = math.inf
    metrics: Sequence[OwnMetric] = ()

    def __post_init__(self) -> None:
        policy = next((rule.buffers for rule in self.method.client if rule.buffers), self.spec.buffers)
        self.spec = self.spec.model_copy(update={"buffers": policy})
        self.clients = ClientSide(
            self.problem, self.model, self.spec, self.schedule, self.seed, self.method.personal, self.order,
            self.state_bytes,
        )  # fmt: skip
        self.num_clients = len(self.clients)
        self.layout = self.model.layouts[None]
        self._plain = plain(self.method)

    @property
    def exchanged(self) -> int:
        """Numbers of the model that travel each way: without personal groups, and without a head that rules send."""
        own_head = (HEAD,) if any(rule.owns_head for rule in self.method.client) else ()
        stays = int(self.layout.mask(*self.method.personal, *own_head).sum())
        return self.layout.size - stays + (0 if self.spec.buffers == "local" else len(self.model.buffers))

    # Before round 0 ------------------------------------------------------------------------------------------

    def _federation(self, rule: Rule, w: Tensor) -> Federation:
        return Federation(
            num_clients=self.num_clients,
            num_classes=self.problem.num_classes,
            sizes=self.clients.sizes,
            label_counts=self.clients.label_counts,
            layout=self.layout,
            feature_dim=self.model.net.feature_dim,
            w=w,
            heads=self.model.initial_heads,
            generators=lambda purpose, *ids: self.clients.generators(f"{rule.key}/{purpose}", *ids),
            steps=self.clients.trainer.steps,
            batch_size=self.spec.batch_size,
        )

    def initial_state(self) -> FederationState:
        """The state before round 0: every rule's first state, and the model as it was built (ask before training)."""
        w, buffers = self.model.w.detach().clone(), self.model.buffers.clone()
        method = self.method
        empty = FederationState(0, w, buffers, {}, {}, {}, {}, {}, {})
        return replace(
            empty,
            direction=method.direction.setup(self._federation(method.direction, w)),
            optimizer=method.optimizer.setup(self._federation(method.optimizer, w)),
            post=method.post.setup(self._federation(method.post, w)),
            rules={rule.key: rule.setup(self._federation(rule, w)) for rule in method.client},
            selection=method.selection.setup(client_pool(self.clients, empty, Cost())),
        )

    def restored(self, saved: dict[str, Any]) -> FederationState:
        """The state that `FederationState.to_dict` gave, from a file that was read into the host's memory."""
        clients = {client: self.clients.placed(entry) for client, entry in saved["clients"].items()}
        rest = {name: value for name, value in saved.items() if name != "clients"}
        return FederationState(
            **map_tensors(rest, lambda tensor: tensor.to(self.clients.device)), clients=clients
        )

    # One round -----------------------------------------------------------------------------------------------

    def run_round(self, state: FederationState) -> tuple[FederationState, RoundReport]:
        """Carry out one round. The given state stays valid.

        Raises:
            Diverged: A client's values or its loss are not finite.
            Interrupted: `stop` returned true.
        """
        cost, t = Cost(), state.round
        ids, selection = self._select(state, cost)
        if not ids:
            new = replace(state, round=t + 1, selection=selection)
            return new, RoundReport(t, (), (), float("nan"), cost)
        method = self._plain if self.method.selection.pretraining(t) else self.method
        view = self._view(method, t, ids)
        late = method.weights.needs_training or method.selection.reweighs
        p = None if late else method.weights.weights(view)
        uploads = Uploads(state, method, len(ids), p, self.model.counters)
        state, loops, losses = self._train(method, replace(state, selection=selection), view, uploads, cost)
        view = replace(
            view,
            steps=np.array([loop.steps for loop in loops]),
            step_norms=np.array([loop.step_norm for loop in loops]),
        )
        p = method.weights.weights(view) if p is None else p
        if method.selection.reweighs and uploads.matrix is not None:
            p = method.selection.reweigh(ids, uploads.matrix, p, selection)
        new = self._aggregate(method, state, replace(view, weights=p), uploads)
        loss = float(np.average(losses, weights=view.sizes))
        return new, RoundReport(t, ids, tuple(float(x) for x in p), loss, cost)

    def _select(self, state: FederationState, cost: Cost) -> tuple[tuple[int, ...], State]:
        kappa = min(self.schedule.clients_per_round, self.num_clients)
        if self.schedule.first_round_full and state.round == 0:
            kappa = self.num_clients
        clients = client_pool(self.clients, state, cost)
        # The draw depends on (seed, round) alone, so all methods meet the same clients.
        rng = self.clients.generators("participation", state.round)
        ids, selection = self.method.selection.choose(state.round, kappa, clients, state.selection, rng)
        return tuple(sorted({int(k) for k in ids})), selection

    def _view(self, method: Method, t: int, ids: Sequence[int]) -> RoundView:
        participants, zeros = np.array(ids), np.zeros(len(ids))
        return RoundView(
            round=t,
            lr=self.schedule.lr(t),
            num_clients=self.num_clients,
            clients=tuple(ids),
            weights=zeros,
            sizes=self.clients.sizes[participants],
            steps=zeros,
            step_norms=zeros,
            label_counts=self.clients.label_counts[participants],
            proximal=sum(rule.proximal for rule in method.client),
        )

    def _train(
        self, method: Method, state: FederationState, view: RoundView, uploads: Uploads, cost: Cost
    ) -> tuple[FederationState, list[LoopResult], list[float]]:
        """Train the clients of the round: the state with what they keep, their loops and mean losses."""
        start = replace(state, w=method.optimizer.broadcast(state.w, state.optimizer))
        clients, loops, values = dict(state.clients), [], RoundValues(state.round, state.w.device)
        try:
            for k in view.clients:
                if self.stop():
                    raise Interrupted
                # Its tensors are valid until the next client trains.
                result = self.clients.train(method.client, start, k, view, cost, values)
                uploads.add(k, result)
                clients.pop(k, None)
                if result.kept:
                    clients[k] = result.kept
                loops.append(result.loop)
        finally:  # Where a rule fails because of NaN, that is said instead.
            losses = values.read()
        return replace(state, clients=clients), loops, losses

    def _aggregate(
        self, method: Method, state: FederationState, view: RoundView, uploads: Uploads
    ) -> FederationState:
        """Weights -> direction -> optimizer -> post, then every rule's server side."""
        with torch.no_grad():
            matrix = uploads.matrix
            if matrix is None:
                dbar, direction = uploads.total, state.direction
            else:
                p = torch.from_numpy(np.asarray(view.weights, dtype=np.float64))
                dbar, direction = method.direction.direction(matrix, p, view, state.direction)
            # In a round of plain FedAvg the neutral rules return the states that they are given.
            w, optimizer = method.optimizer.step(state.w, dbar, state.optimizer)
            w, post = method.post.apply(w, dbar, view, state.post)
            rules = dict(state.rules)
            for rule in method.client:
                reduced = replace(view, payload=uploads.payload(rule), update=dbar)
                rules[rule.key] = rule.receive(state.rules[rule.key], reduced)
            selection = state.selection
            if method.selection.watches(view.round) and matrix is not None:
                selection = method.selection.observe(view.clients, matrix, selection)
            averaged = uploads.buffers.mean(view.weights)
        if self.spec.buffers == "frozen":
            averaged = state.buffers
        return replace(
            state, round=state.round + 1, w=w, buffers=averaged, direction=direction, optimizer=optimizer, post=post,
            rules=rules, selection=selection,
        )  # fmt: skip

    # Between rounds ------------------------------------------------------------------------------------------

    def evaluate(self, state: FederationState) -> list[Record]:
        """Records of the method's prediction on every evaluation set, after ``state.round`` rounds.

        Raises:
            Diverged: A metric of a whole set is not finite.
        """
        view, problem, rule = server_view(self.clients, state), self.problem, self.method.prediction
        records: list[Record] = []
        for split, data in problem.evaluation_sets.items():
            predictors = rule.predictors(view)
            values = evaluate(
                predictors, data, problem.num_classes, problem.num_attributes, rule.logits, self.metrics
            )
            records += [Record(state.round, split, *key, value) for key, value in values.items()]
        for split, owned in problem.client_sets.items():
            unseen = split == "unseen"
            answers = self._for_others(view) if unseen else rule.predictors(view)
            values = over_clients(client_accuracies(answers, owned), "unseen" if unseen else "client")
            records += [Record(state.round, split, *key, value) for key, value in values.items()]
        if "eigenvalue_spread" in self.measures:
            measured = eigenvalue_spread(view.model(), problem.evaluation_sets["test"])
            records += [Record(state.round, "test", "all", name, value) for name, value in measured.items()]
        for record in records:
            if record.group == "all" and not math.isfinite(record.value):
                raise Diverged(state.round, f"{record.metric} on the {record.split} set")
        for metric, value in self.method.selection.measures(state.selection).items():
            records.append(Record(state.round, "selection", "all", metric, float(value)))
        return records

    def _for_others(self, view: ServerView) -> Iterable[Predictor]:
        """What a client outside the federation gets: the method's one predictor, or the global model if each has one.

        The parts of that model that stay at the clients have their initial values.
        """
        first = list(islice(self.method.prediction.predictors(view), 2))
        return first if len(first) == 1 else [view.model().logits]
