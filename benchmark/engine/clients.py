"""The clients of a federation: their data, what they keep between rounds, and their local training."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmark.config.schema import TrainConfig
from benchmark.engine import randomness
from benchmark.engine.records import Cost
from benchmark.engine.round_values import RoundValues
from benchmark.engine.state import FederationState, Problem, Schedule, map_tensors
from benchmark.engine.training import ActiveRule, ClientWork, LocalTrainer, LoopResult
from benchmark.heterogeneity import class_counts, group_counts
from benchmark.models.flat import FlatModel
from methods.core.contexts import ClientContext, FrozenModel, Head, Phase, RoundView, State, Trained
from methods.core.rules import ClientRule
from methods.core.samples import Samples, to_device

Order = Callable[[int, int, int, int, int], np.ndarray]
"""``order(round, client, phase, epoch, n)``: the order [n] in which the n local samples are visited."""


class ClientResult(NamedTuple):
    """What one client returns after its local training.

    Tensors may be views of the model's vectors: they are valid until the next client trains.

    Attributes:
        update: D_k [d], zero in personal groups.
        buffers: Its BatchNorm buffers.
        payloads: What each rule uploads.
        kept: What stays at the client.
        loop: Steps, losses and samples of the local loop.
    """

    update: Tensor
    buffers: Tensor
    payloads: list[tuple[ClientRule, State]]
    kept: State
    loop: LoopResult


@dataclass
class ClientSide:
    """All clients, and the one network on which they train in turn.

    Attributes:
        personal: Groups of parameters that stay at the clients.
        order: Replaces the random order in which local samples are visited.
        state_bytes: Most bytes on the device of what all clients keep between rounds. More are kept in host memory.
    """

    problem: Problem
    model: FlatModel
    spec: TrainConfig
    schedule: Schedule
    seed: int
    personal: frozenset[str]
    order: Order | None = None
    state_bytes: float = math.inf

    def __post_init__(self) -> None:
        problem = self.problem
        self.device = device = problem.images.device
        self.indices = [
            to_device(torch.from_numpy(np.asarray(c, dtype=np.int64)), device) for c in problem.clients
        ]
        self.sizes = np.array([len(c) for c in problem.clients], dtype=np.float64)
        self.label_counts = class_counts(problem.clients, problem.labels.cpu().numpy(), problem.num_classes)
        # The positions in w of the personal groups, ascending: a client keeps only these values.
        places = self.model.layouts[None].mask(*self.personal).nonzero().flatten()
        self._personal_places = to_device(places, device)
        self._initial_buffers = self.model.buffers.clone()
        self.generators = partial(randomness.generator, self.seed)
        transform = problem.transform if problem.augment is None else problem.augmented_transform
        self.trainer = LocalTrainer(self.model, self.spec, transform or problem.transform, problem.augment)
        self._pooled: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    # Data ----------------------------------------------------------------------------------------------------

    @cached_property
    def group_counts(self) -> np.ndarray | None:
        """How many samples of each class and attribute each client has [K, C, A]; None without attributes."""
        p = self.problem
        if p.attributes is None:
            return None
        labels, attributes = p.labels.cpu().numpy(), p.attributes.cpu().numpy()
        return group_counts(p.clients, labels, attributes, p.num_classes, p.num_attributes)

    def data(self, client: int) -> Samples:
        return self._samples(self.indices[client])

    def _samples(self, rows: Tensor) -> Samples:
        p = self.problem
        attributes = None if p.attributes is None else p.attributes[rows]
        return Samples(p.images, p.labels[rows], p.transform, attributes, rows)

    @cached_property
    def all_data(self) -> Samples:
        return self._samples(torch.unique(torch.cat(self.indices)))

    def _random_order(self, round: int, client: int, phase: int, epoch: int, n: int) -> np.ndarray:
        return self._epoch_draw("batches", round, client, phase, epoch).permutation(n)

    def _epoch_draw(
        self, purpose: str, round: int, client: int, phase: int, epoch: int
    ) -> np.random.Generator:
        """The generator of one epoch of a phase of local training."""
        return self.generators(f"{purpose}/phase {phase}" if phase else purpose, round, client, epoch)

    def pooled(self, owner: str, count: int) -> tuple[Tensor, Tensor]:
        """(x [count, ...], y [count]), normalised, from all clients' data; the same in every round."""
        if (owner, count) not in self._pooled:
            rows = np.unique(np.concatenate(self.problem.clients))
            drawn = self.generators(f"{owner}/pooled").choice(rows, min(count, len(rows)), replace=False)
            data = self._samples(to_device(torch.from_numpy(np.sort(drawn)), self.device))
            self._pooled[owner, count] = data.transform(data.stored(slice(None))), data.y
        return self._pooled[owner, count]

    # What clients keep between rounds ------------------------------------------------------------------------

    def placed(self, entry: State) -> State:
        """What a client keeps, in the memory where it waits for the client's next round."""
        size = _count_numbers(entry) * self.model.w.element_size() * len(self)
        return map_tensors(entry, _on_host if size > self.state_bytes else self._here)

    def _kept(self, state: FederationState, client: int, part: str) -> Any:
        """A part of what a client keeps, on the device; None if it keeps none."""
        return map_tensors(state.clients.get(client, {}).get(part), self._here)

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    # The start of a round ------------------------------------------------------------------------------------

    def start_vector(self, state: FederationState, client: int) -> Tensor:
        """w with the client's own values in its personal groups [d]; w itself if nothing is personal."""
        personal = self._kept(state, client, "personal")
        if personal is None:
            return state.w
        start = state.w.clone()
        start[self._personal_places[: len(personal)]] = personal
        return start

    def start_buffers(self, state: FederationState, client: int) -> Tensor:
        """BatchNorm buffers that the client starts from. With ``local`` its own, at first the initial ones."""
        if self.spec.buffers == "local":
            own = self._kept(state, client, "buffers")
            return self._initial_buffers if own is None else own
        return state.buffers

    def with_head(self, w: Tensor, head: Head | None) -> Tensor:
        """What training starts from: w [d], or its body and ``head``; the network gets the layout of it."""
        self.model.use_head(head.key if head else None)
        return w if head is None else torch.cat([w[: self.model.body_size], head.vector])

    def put(self, w: Tensor, buffers: Tensor, head: Head | None) -> None:
        """Put the values w [d] and ``buffers`` into the network, with the classifier of ``head``."""
        self.model.use_head(head.key if head else None)
        with torch.no_grad():
            self.model.w.copy_(w)
            self.model.buffers.copy_(buffers)

    def contexts(
        self,
        rules: Sequence[ClientRule],
        state: FederationState,
        client: int,
        start: Tensor,
        received: Mapping[str, State],
        states: Mapping[str, State],
        purpose: str,
        cost: Cost,
        data: Samples | None = None,
    ) -> list[ActiveRule]:
        """Call each rule's ``begin`` and return the rules with what they may read.

        ``start`` [d] is what training starts from; ``received`` and ``states`` are what each rule sent down and keeps
        at this client, by its key; ``purpose`` tells the draws of training from those of a selection; what the rules
        ask of models adds to ``cost``; ``data`` replaces the client's own samples.
        """
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
                data=self.data(client) if data is None else data,
                label_counts=self.label_counts[client],
                received=received[rule.key],
                state=states.get(rule.key, {}),
                frozen=partial(self.frozen, cost),
                gradients=partial(self.gradients, cost),
                pooled=partial(self.pooled, rule.key),
                augmented=self.problem.augment is not None,
                generators=partial(self._draw, f"{purpose}/{rule.key}", state.round, client),
            )
            active.append(ActiveRule(rule, replace(ctx, local=rule.begin(ctx))))
        return active

    def _draw(self, owner: str, round: int, client: int, purpose: str, *ids: int) -> np.random.Generator:
        return self.generators(f"{owner}/{purpose}", round, client, *ids)

    def frozen(self, cost: Cost, w: Tensor, buffers: Tensor, head: Head | None = None) -> FrozenModel:
        """`FlatModel.frozen`; the samples that pass through it add to ``cost``."""
        model = self.model.frozen(w, buffers, head)

        def features(x: Tensor) -> Tensor:
            cost.forward += len(x)
            return model.features(x)

        return replace(model, features=features)

    def gradients(self, cost: Cost, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """`FlatModel.gradients`; the samples add to ``cost``."""
        cost.trained += len(x)
        return self.model.gradients(w, buffers, x, y)

    # Training ------------------------------------------------------------------------------------------------

    def train(
        self,
        rules: Sequence[ClientRule],
        state: FederationState,
        client: int,
        view: RoundView,
        cost: Cost,
        values: RoundValues,
    ) -> ClientResult:
        """Train one client in the round after ``state``. ``values`` notes its losses and whether they are finite."""
        received = {rule.key: rule.send(state.rules[rule.key], client, view) for rule in rules}
        handed = (sent["head"] for sent in received.values() if isinstance(sent.get("head"), Head))
        head: Head | None = next(handed, None)
        start = self.with_head(self.start_vector(state, client), head)
        states = self._kept(state, client, "rules") or {}
        active = self.contexts(rules, state, client, start, received, states, "rule", cost)
        cost.scalars_down += _count_numbers(received)
        work = self.work(self.data(client), active, state, client)
        self.put(start, self.start_buffers(state, client), head)
        loop = self.trainer.run(work, _phases(active), self.schedule.lr(state.round))
        with torch.no_grad():
            values.add_sent(client, self.model.w, self.model.buffers)
            values.add_losses(client, loop.losses, loop.sizes)
            update = self._update(start, head)
            trained = Trained(
                w=self.model.w,
                update=update,
                buffers=self.model.buffers,
                steps=loop.steps,
                step_norm=loop.step_norm,
                head=self.model.w[self.model.body_size :] if head is not None else None,
            )
            # A rule that rests in this round keeps its state at the client.
            kept: State = {key: value for key, value in states.items() if key not in received}
            payloads = _finish(work.rules, trained, kept, values)
            entry = self.placed(self._entry(kept))
            if len(self._personal_places):
                update = update.index_fill(0, self._personal_places, 0.0)
        self.model.use_head(None)
        cost.trained += loop.repeated
        cost.scalars_up += sum(_count_numbers(payload) for _, payload in payloads)
        return ClientResult(update, self.model.buffers, payloads, entry, loop)

    def work(
        self,
        data: Samples,
        active: Sequence[ActiveRule],
        state: FederationState,
        client: int,
        training: str = "training",
        sampling: str = "sampling",
    ) -> ClientWork:
        """What a client trains on in the round after ``state``.

        ``training`` and ``sampling`` name the random draws of dropout and augmentation, and of weighted sampling.
        """
        rules, visit = self.trainer.recordable(active)
        return ClientWork(
            data,
            rules,
            order=partial(self.order or self._random_order, state.round, client),
            draw=partial(self._epoch_draw, sampling, state.round, client),
            torch_seed=randomness.torch_seed(self.seed, training, state.round, client),
            visit=visit,
        )

    def _update(self, start: Tensor, head: Head | None) -> Tensor:
        """D_k [d]. A head that the server handed down is not part of the update: its place is zero."""
        if head is None:
            # The gradient vector is not needed after training, so its memory is used for the update.
            return torch.sub(self.model.w.detach(), start, out=self.model.g)
        update = torch.zeros(self.model.layouts[None].size, dtype=start.dtype, device=start.device)
        body = self.model.body_size
        torch.sub(self.model.w.detach()[:body], start[:body], out=update[:body])
        return update

    def _entry(self, rules: State) -> State:
        """What stays at the client that has just trained: states of rules, personal groups, local buffers."""
        entry: State = {"rules": rules} if rules else {}
        if len(self._personal_places):
            # A head that the server handed down has other values in the place of the model's own head.
            within = (
                self._personal_places
                if self.model.head_key is None
                else self._personal_places[self._personal_places < self.model.body_size]
            )
            entry["personal"] = self.model.w.detach()[within]
        if self.spec.buffers == "local" and len(self.model.buffers):
            entry["buffers"] = self.model.buffers.clone()
        return entry


def _phases(active: Sequence[ActiveRule]) -> tuple[Phase, ...]:
    """The phases of the one rule that has its own, or a single neutral phase."""
    for one in active:
        phases = one.rule.phases(one.ctx)
        if phases != (Phase(),):
            return phases
    return (Phase(),)


def _finish(
    active: Sequence[ActiveRule], trained: Trained, kept: State, values: RoundValues
) -> list[tuple[ClientRule, State]]:
    """Call each rule's ``finish``: its new state goes into ``kept``, what it uploads is returned."""
    payloads = []
    for one in active:
        new_state, payload = one.rule.finish(one.ctx, trained)
        values.add_sent(one.ctx.client, *payload.values())
        payloads.append((one.rule, payload))
        if new_state:
            # A tensor may be a view of the model's vectors, which the next client changes.
            kept[one.rule.key] = map_tensors(new_state, lambda tensor: tensor.detach().clone())
    return payloads


def _on_host(tensor: Tensor) -> Tensor:
    # torch pins the memory of a copy to the host that does not wait. It is complete when the round's values are read.
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor.to("cpu", non_blocking=True)


def _count_numbers(value: Any) -> int:
    """How many numbers are in a message or state."""
    if isinstance(value, Mapping):
        return sum(map(_count_numbers, value.values()))
    if isinstance(value, Head):
        value = value.vector
    return value.numel() if isinstance(value, Tensor) else 1
