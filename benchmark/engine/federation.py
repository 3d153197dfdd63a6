"""Rounds: select, send down, train each, aggregate, evaluate. A pure function from state to state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmark.engine import randomness
from benchmark.engine.aggregation import Buffers, Payloads, Updates
from benchmark.engine.evaluation import EvaluationSet, evaluate
from benchmark.engine.measures import MEASURES
from benchmark.engine.records import Cost, Record
from benchmark.engine.training import ActiveRule, ClientData, LocalTrainer, Order, TrainSpec
from benchmark.engine.views import FrozenPool, FrozenView, Probe
from benchmark.models.networks import FlatModel
from methods.core.build import plain
from methods.core.contexts import ClientContext, Federation, Head, Phase, RoundView, State, Trained
from methods.core.rules import ClientProbe, ClientRule, Method
from methods.core.vectors import HEAD


class Diverged(Exception):
    """A client sent something that is not finite."""

    def __init__(self, round: int, client: int) -> None:
        """``round`` counts from 0."""
        super().__init__(f"round {round}: the update of client {client} is not finite (NaN or infinity)")
        self.round = round
        self.client = client


class Interrupted(Exception):
    """Somebody asked the run to stop; the state of the last finished round is intact."""


@dataclass(frozen=True)
class Problem:
    """The data of a run on the device: training arrays, the clients' indices, and the sets to evaluate on."""

    images: Tensor
    labels: Tensor
    attributes: Tensor | None
    clients: Sequence[np.ndarray]
    num_classes: int
    num_attributes: int
    transform: Callable[[Tensor], Tensor]
    evaluation_sets: Mapping[str, EvaluationSet]
    augmented_transform: Callable[[Tensor], Tensor] | None = None
    """Of images that were augmented, which are cut and resized already; None: as of all others."""


@dataclass(frozen=True)
class Schedule:
    """The budget over rounds: how many, how many clients in each (kappa), and the client's rate as a function of t."""

    rounds: int
    clients_per_round: int
    lr: Callable[[int], float]
    first_round_full: bool = False


@dataclass(frozen=True)
class FederationState:
    """All that must survive a crash: the next round, the model, and what every rule keeps.

    ``clients`` maps a client to {"rules": {rule: state}, "personal": vector [d] of its own groups, "buffers": ...};
    only clients that took part and have something to keep are in it.
    """

    round: int
    w: Tensor
    buffers: Tensor
    direction: State
    optimizer: State
    post: State
    rules: dict[str, State]
    selection: State
    clients: dict[int, State]

    def to_dict(self) -> dict[str, Any]:
        """Plain containers and tensors, for a checkpoint."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round: who took part, their weights, mean training loss, cost on top of FedAvg's."""

    round: int
    clients: tuple[int, ...]
    weights: tuple[float, ...]
    train_loss: float
    cost: Cost

    def records(self, num_clients: int) -> list[Record]:
        """Loss, cost, and, where not everybody took part, the weight of each participant; by finished rounds."""
        done = self.round + 1
        found = [Record(done, "train", "all", "loss", self.train_loss), *self.cost.records(done)]
        if len(self.clients) < num_clients:
            found += [
                Record(done, "participation", f"client={k}", "weight", p)
                for k, p in zip(self.clients, self.weights, strict=True)
            ]
        return found


@dataclass
class _Done:
    """One client's finished round: a_k, tau_k, mean loss; its update and payload are already consumed."""

    steps: int
    step_norm: float
    loss: float


class _Upload(NamedTuple):
    """What the clients of a round have sent so far."""

    updates: Updates
    payloads: Payloads
    buffers: Buffers
    cost: Cost


def _never() -> bool:
    return False


class _Clients:
    """The clients that a selection rule may ask (``methods.core.rules.ClientPool``); answers add to ``cost``."""

    def __init__(self, federation: FederatedRun, state: FederationState, cost: Cost) -> None:
        self._run, self._state, self._cost = federation, state, cost
        self.num_clients = federation.num_clients
        self.sizes = federation.sizes

    @property
    def group_counts(self) -> np.ndarray | None:
        """N^k [K, C, A], for measures alone."""
        return self._run.group_counts

    def ask(self, ids: Sequence[int], question: Callable[[ClientProbe], np.ndarray]) -> np.ndarray:
        """Answers [len(ids), s]."""
        rows = [
            np.atleast_1d(
                np.asarray(question(Probe(self._run, self._state, int(k), self._cost)), dtype=np.float64)
            )
            for k in ids
        ]
        self._cost.scalars_up += sum(len(row) for row in rows)
        return np.stack(rows) if rows else np.zeros((0, 0))


@dataclass
class FederatedRun:
    """One federation: a problem, a method, a model and a budget. ``step`` maps a state to the next one.

    ``stop`` is asked between clients; when it says yes, :class:`Interrupted` is raised. ``order`` replaces the random
    order in which local samples are visited (for tests against stored batches). ``measures`` are taken of the global
    model at every evaluation (``benchmark.engine.measures``).
    """

    problem: Problem
    method: Method
    model: FlatModel
    spec: TrainSpec
    schedule: Schedule
    seed: int
    heads: Mapping[str, Tensor] = field(default_factory=dict)
    order: Order | None = None
    measures: Sequence[str] = ()
    stop: Callable[[], bool] = _never

    def __post_init__(self) -> None:
        """Derive what every round needs."""
        problem = self.problem
        device = problem.images.device
        self.indices = [torch.from_numpy(np.asarray(c, dtype=np.int64)).to(device) for c in problem.clients]
        self.num_clients = len(self.indices)
        self.sizes = np.array([len(c) for c in problem.clients], dtype=np.float64)
        labels = problem.labels.cpu().numpy()
        self.label_counts = np.stack(
            [np.bincount(labels[c], minlength=problem.num_classes) for c in problem.clients]
        )
        self.layout = self.model.layouts[None]
        # Where the personal groups stand in w, ascending: a client keeps only these values.
        own = self.layout.mask(*self.method.personal).nonzero().flatten().to(self.model.w.device)
        self._own = own if len(own) else None
        self._initial_buffers = self.model.buffers.clone()
        self._trained = False
        self.setup_cost = Cost()
        self._plain = plain(self.method)
        policy = next((r.buffers for r in self.method.client if r.buffers), self.spec.buffers)
        self.spec = replace(self.spec, buffers=policy)
        transform = problem.transform
        if self.spec.augment is not None and problem.augmented_transform is not None:
            transform = problem.augmented_transform
        self.trainer = LocalTrainer(self.model, self.spec, transform, self.order or self._random_order)
        self.pool = FrozenPool(self.model)
        self._drawn: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    @cached_property
    def group_counts(self) -> np.ndarray | None:
        """How many samples of each class and attribute each client has [K, C, A]; None without attributes."""
        p = self.problem
        if p.attributes is None:
            return None
        groups = (p.labels * p.num_attributes + p.attributes).cpu().numpy()
        size = p.num_classes * p.num_attributes
        counts = [np.bincount(groups[client], minlength=size) for client in p.clients]
        return np.stack(counts).reshape(-1, p.num_classes, p.num_attributes)

    # Before round 0 ------------------------------------------------------------------------------------------

    def generators(self, purpose: str, *ids: int) -> np.random.Generator:
        """An independent generator of this run."""
        return randomness.generator(self.seed, purpose, *ids)

    def _random_order(self, round: int, client: int, epoch: int, n: int) -> np.ndarray:
        return self.generators("batches", round, client, epoch).permutation(n)

    def pooled(self, owner: str, count: int) -> tuple[Tensor, Tensor]:
        """(x [count, ...], y [count]), normalised, from all clients' data: drawn once, and the same ever after."""
        if (owner, count) not in self._drawn:
            every = np.unique(np.concatenate([np.asarray(c) for c in self.problem.clients]))
            rng = self.generators(f"{owner}/pooled")
            picked = torch.from_numpy(np.sort(rng.choice(every, size=min(count, len(every)), replace=False)))
            picked = picked.to(self.problem.images.device)
            self._drawn[owner, count] = (
                self.problem.transform(self.problem.images[picked]),
                self.problem.labels[picked],
            )
        return self._drawn[owner, count]

    def _federation(self, owner: str, w: Tensor) -> Federation:
        return Federation(
            num_clients=self.num_clients,
            num_classes=self.problem.num_classes,
            sizes=self.sizes,
            label_counts=self.label_counts,
            rounds=self.schedule.rounds,
            layout=self.layout,
            feature_dim=self.model.net.feature_dim,
            w=w,
            heads=self.heads,
            generators=lambda purpose, *ids: self.generators(f"{owner}/{purpose}", *ids),
            steps=self.trainer.steps,
        )

    def initial_state(self) -> FederationState:
        """The state before round 0: the model as it was built, and every rule's set-up.

        Raises RuntimeError once the model has trained: its first values are not kept beside the others.
        """
        if self._trained:
            raise RuntimeError("this model has trained already; build a new FederatedRun to start again")
        w, buffers = self.model.w.detach().clone(), self.model.buffers.clone()
        method = self.method
        empty = FederationState(0, w, buffers, {}, {}, {}, {}, {}, {})
        return replace(
            empty,
            direction=method.direction.setup(self._federation(method.direction.key, w)),
            optimizer=method.optimizer.setup(w),
            post=method.post.setup(self._federation(method.post.key, w)),
            rules={rule.key: rule.setup(self._federation(rule.key, w)) for rule in method.client},
            selection=method.selection.setup(_Clients(self, empty, self.setup_cost)),
        )

    # One round -----------------------------------------------------------------------------------------------

    def step(self, state: FederationState) -> tuple[FederationState, RoundReport]:
        """One round. Raises :class:`Diverged` or :class:`Interrupted`; the given state stays valid."""
        cost = Cost()
        ids, selection = self._select(state, cost)
        if not ids:
            return replace(state, round=state.round + 1, selection=selection), RoundReport(
                state.round, (), (), float("nan"), cost
            )
        t = state.round
        method = self._plain if self.method.selection.pretraining(t) else self.method
        self.pool.cost = cost
        view = replace(self._view(t, ids), proximal=sum(rule.proximal for rule in method.client))
        late = method.weights.needs_training or method.selection.reweighs
        p = None if late else method.weights.weights(view)
        upload = _Upload(
            Updates(state.w, len(ids), keep=method.keeps_updates(t)),
            Payloads(method.client),
            Buffers(state.buffers, self.model.counters),
            cost,
        )
        start = replace(state, w=method.optimizer.broadcast(state.w, state.optimizer))
        clients = dict(state.clients)
        done: list[_Done] = []
        for j, k in enumerate(ids):
            if self.stop():
                raise Interrupted
            done.append(
                self._train_client(
                    method, start, k, None if p is None else float(p[j]), view, upload, clients
                )
            )
        view = replace(
            view,
            steps=np.array([d.steps for d in done]),
            step_norms=np.array([d.step_norm for d in done]),
        )
        p = method.weights.weights(view) if p is None else p
        if method.selection.reweighs and upload.updates.matrix is not None:
            p = method.selection.reweigh(ids, upload.updates.matrix, p, selection)
        view = replace(view, weights=p)
        new = self._aggregate(method, replace(state, selection=selection, clients=clients), view, upload)
        loss = float(np.average([d.loss for d in done], weights=view.sizes))
        return new, RoundReport(t, ids, tuple(float(x) for x in p), loss, cost)

    def _select(self, state: FederationState, cost: Cost) -> tuple[tuple[int, ...], State]:
        kappa = min(self.schedule.clients_per_round, self.num_clients)
        if self.schedule.first_round_full and state.round == 0:
            kappa = self.num_clients
        clients = _Clients(self, state, cost)
        # Drawn from (seed, round) alone, so that all methods meet the same clients.
        rng = self.generators("participation", state.round)
        ids, selection = self.method.selection.choose(state.round, kappa, clients, state.selection, rng)
        return tuple(sorted({int(k) for k in ids})), selection

    def _view(self, t: int, ids: Sequence[int]) -> RoundView:
        chosen, zeros = np.array(ids), np.zeros(len(ids))
        return RoundView(
            round=t,
            lr=self.schedule.lr(t),
            num_clients=self.num_clients,
            clients=tuple(ids),
            weights=zeros,
            sizes=self.sizes[chosen],
            steps=zeros,
            step_norms=zeros,
            label_counts=self.label_counts[chosen],
        )

    def data(self, client: int) -> ClientData:
        """The samples of one client."""
        p = self.problem
        return ClientData(p.images, p.labels, self.indices[client], p.transform, all_attributes=p.attributes)

    @property
    def exchanged(self) -> int:
        """Numbers of the model that travel each way: not what is personal, nor a head that rules send by themselves."""
        own_head = (HEAD,) if any(rule.owns_head for rule in self.method.client) else ()
        stays = int(self.layout.mask(*self.method.personal, *own_head).sum())
        return self.layout.size - stays + (0 if self.spec.buffers == "local" else len(self.model.buffers))

    def start_vector(self, state: FederationState, client: int) -> Tensor:
        """w with the client's own groups in their places [d]; w itself if nothing is personal."""
        own = state.clients.get(client, {}).get("personal")
        if self._own is None or own is None:
            return state.w
        start = state.w.clone()
        start[self._own[: len(own)]] = own
        return start

    def start_buffers(self, state: FederationState, client: int) -> Tensor:
        """BatchNorm buffers that the client starts from; its own under ``local``, the initial ones at first."""
        if self.spec.buffers == "local":
            return state.clients.get(client, {}).get("buffers", self._initial_buffers)
        return state.buffers

    def contexts(
        self,
        rules: Sequence[ClientRule],
        state: FederationState,
        client: int,
        start: Tensor,
        received: Mapping[str, State],
        states: Mapping[str, State],
        purpose: str,
        data: ClientData | None = None,
    ) -> list[ActiveRule]:
        """Each rule with what it may read, its ``begin`` done; ``data`` are the client's own unless given."""
        active = []
        for rule in rules:
            ctx = ClientContext(
                client=client,
                round=state.round,
                rounds=self.schedule.rounds,
                num_classes=self.problem.num_classes,
                layout=self.model.layout,
                w=start,
                buffers=self.start_buffers(state, client),
                lr=self.schedule.lr(state.round),
                momentum=self.spec.momentum,
                data=self.data(client) if data is None else data,
                label_counts=self.label_counts[client],
                received=received[rule.key],
                state=states.get(rule.key, {}),
                frozen=self.pool.get,
                gradients=self.pool.gradients,
                pooled=partial(self.pooled, rule.key),
                augmented=self.spec.augment is not None,
                generators=partial(self._own_generators, f"{purpose}/{rule.key}", state.round, client),
            )
            active.append(ActiveRule(rule, replace(ctx, local=rule.begin(ctx))))
        return active

    def _own_generators(
        self, owner: str, round: int, client: int, purpose: str, *ids: int
    ) -> np.random.Generator:
        return self.generators(f"{owner}/{purpose}", round, client, *ids)

    def _load(
        self, state: FederationState, client: int, received: Mapping[str, State]
    ) -> tuple[Tensor, Head | None]:
        """Put the start values of a client into the model: (start vector, the head handed down or None)."""
        handed = [r["head"] for r in received.values() if isinstance(r.get("head"), Head)]
        head: Head | None = handed[0] if handed else None
        start = self.start_vector(state, client)
        self.model.use_head(head.key if head else None)
        self.pool.forget()
        if head is not None:
            start = torch.cat([start[: self.model.body_size], head.vector])
        self._trained = True
        with torch.no_grad():
            self.model.w.copy_(start)
            self.model.buffers.copy_(self.start_buffers(state, client))
        return start, head

    def _train_client(
        self,
        method: Method,
        state: FederationState,
        k: int,
        p: float | None,
        view: RoundView,
        upload: _Upload,
        clients: dict[int, State],
    ) -> _Done:
        t = state.round
        received = {rule.key: rule.send(state.rules[rule.key], k, view) for rule in method.client}
        start, head = self._load(state, k, received)
        states = state.clients.get(k, {}).get("rules", {})
        active = self.contexts(method.client, state, k, start, received, states, "rule")
        result = self.trainer.run(
            self.data(k),
            active,
            self._phases(active),
            lr=self.schedule.lr(t),
            round=t,
            client=k,
            draw=lambda epoch: self.generators("sampling", t, k, epoch),
            torch_seed=randomness.torch_seed(self.seed, "training", t, k),
        )
        with torch.no_grad():
            self._require_finite(t, k, self.model.w, self.model.buffers)
            update = self._update(start, head)
            trained = Trained(
                w=self.model.w,
                update=update,
                buffers=self.model.buffers,
                steps=result.steps,
                step_norm=result.step_norm,
                head=self.model.w[self.model.body_size :] if head is not None else None,
            )
            # A rule that rests in this round keeps its client state.
            kept: State = {key: value for key, value in states.items() if key not in received}
            upload.cost.trained += result.repeated
            upload.cost.scalars_down += sum(_numbers(sent) for sent in received.values())
            for rule, ctx in active:
                own, payload = rule.finish(ctx, trained)
                self._require_finite(t, k, *payload.values())
                upload.cost.scalars_up += _numbers(payload)
                upload.payloads.add(rule, k, payload, p)
                if own:
                    kept[rule.key] = self._owned(own)
            self._keep(clients, k, kept)
            if self._own is not None:
                update = update.index_fill(0, self._own, 0.0)
            upload.updates.add(update, p)
            upload.buffers.add(self.model.buffers, p)
        self.model.use_head(None)
        return _Done(result.steps, result.step_norm, result.loss)

    @staticmethod
    def _require_finite(round: int, client: int, *tensors: Tensor) -> None:
        # A sum is finite only if all its terms are, and costs less memory than looking at each.
        if not all(bool(torch.isfinite(tensor.sum())) for tensor in tensors):
            raise Diverged(round, client)

    @staticmethod
    def _phases(active: Sequence[ActiveRule]) -> tuple[Phase, ...]:
        """The phases of the one rule that has its own, else the neutral one."""
        for rule, ctx in active:
            phases = rule.phases(ctx)
            if phases != (Phase(),):
                return phases
        return (Phase(),)

    def _update(self, start: Tensor, head: Head | None) -> Tensor:
        """D_k [d]. A head that the server handed down is opaque to vector rules: its place is zero."""
        assert self.model.g is not None
        if head is None:
            # The gradient vector is free after training; the update takes its place instead of new memory.
            return torch.sub(self.model.w.detach(), start, out=self.model.g)
        update = torch.zeros(self.layout.size, dtype=start.dtype, device=start.device)
        body = self.model.body_size
        torch.sub(self.model.w.detach()[:body], start[:body], out=update[:body])
        return update

    def _owned(self, value: Any) -> Any:
        """``value`` with every tensor copied that is a view of the model's vectors."""
        if isinstance(value, dict):
            return {key: self._owned(item) for key, item in value.items()}
        if isinstance(value, Tensor) and self.model.shares_memory(value):
            return value.detach().clone()
        return value

    def _keep(self, clients: dict[int, State], k: int, kept: State) -> None:
        """Store what stays at client k: rule states, personal groups, local buffers."""
        entry: State = {}
        if kept:
            entry["rules"] = kept
        if self._own is not None:
            # A head that the server handed down has its place where the model's own head would be personal.
            within = self._own if self.model.head_key is None else self._own[self._own < self.model.body_size]
            entry["personal"] = self.model.w.detach()[within]
        if self.spec.buffers == "local" and len(self.model.buffers):
            entry["buffers"] = self.model.buffers.clone()
        clients.pop(k, None)
        if entry:
            clients[k] = entry

    def _aggregate(
        self, method: Method, state: FederationState, view: RoundView, upload: _Upload
    ) -> FederationState:
        """weights -> direction -> optimizer -> post, then every rule's server side. What rests keeps its state."""
        with torch.no_grad():
            matrix = upload.updates.matrix
            if matrix is None:
                dbar, direction = upload.updates.total, state.direction
            else:
                p = torch.from_numpy(np.asarray(view.weights, dtype=np.float64))
                dbar, direction = method.direction.direction(matrix, p, view, state.direction)
            # The neutral rules of a plain round return the states they are given.
            w, optimizer = method.optimizer.step(state.w, dbar, state.optimizer)
            w, post = method.post.apply(state.w, w, dbar, view, state.post)
            rules = state.rules | {
                rule.key: rule.receive(
                    state.rules[rule.key],
                    replace(view, payload=upload.payloads.reduced(rule, view), update=dbar),
                )
                for rule in method.client
            }
            selection = state.selection
            if method.selection.watches(view.round) and matrix is not None:
                selection = method.selection.observe(view.clients, matrix, selection)
            averaged = upload.buffers.mean(view.weights)
        if self.spec.buffers == "frozen":
            averaged = state.buffers
        return replace(
            state, round=state.round + 1, w=w, buffers=averaged, direction=direction, optimizer=optimizer, post=post,
            rules=rules, selection=selection,
        )  # fmt: skip

    # Between rounds ------------------------------------------------------------------------------------------

    def evaluate(self, state: FederationState) -> list[Record]:
        """Records of the method's prediction on every evaluation set, after ``state.round`` rounds."""
        view = _View(self, state)
        rule = self.method.prediction
        records = [
            record
            for split, data in self.problem.evaluation_sets.items()
            for record in evaluate(rule.predictors(view), data, state.round, split, rule.logits)
        ]
        for name in self.measures:
            for metric, value in MEASURES[name](view.model(), self.problem.evaluation_sets["test"]).items():
                records.append(Record(state.round, "test", "all", metric, value))
        for metric, value in self.method.selection.measures(state.selection).items():
            records.append(Record(state.round, "selection", "all", metric, float(value)))
        return records


def _numbers(values: State) -> int:
    """How many scalars are in a message."""
    total = 0
    for value in values.values():
        if isinstance(value, Head):
            value = value.vector
        if isinstance(value, Mapping):
            total += _numbers(dict(value))
        else:
            total += value.numel() if isinstance(value, Tensor) else 1
    return total


class _View:
    """What a prediction rule may read (``methods.core.rules.ServerView``)."""

    def __init__(self, run: FederatedRun, state: FederationState) -> None:
        self._run, self._state = run, state
        self.num_clients = run.num_clients
        self.w, self.buffers, self.rules = state.w, state.buffers, state.rules

    def model(
        self, client: int | None = None, head: Head | None = None, w: Tensor | None = None
    ) -> FrozenView:
        """The global model, a personal one, or the one with values w; with ``head``, its classifier replaced."""
        run, state = self._run, self._state
        if w is None:
            w = state.w if client is None else run.start_vector(state, client)
        buffers = state.buffers if client is None else run.start_buffers(state, client)
        return FrozenView(run.model, run.pool.board, w, buffers, head)

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the validation split, if there is one."""
        held = self._run.problem.evaluation_sets.get("validation")
        if held is not None:
            yield from held.batches()

    def training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all clients' training data, each sample once."""
        p = self._run.problem
        every = torch.unique(torch.cat(self._run.indices))
        yield from ClientData(p.images, p.labels, every, p.transform).batches()
