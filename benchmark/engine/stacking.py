"""Several clients side by side: one local step of K clients at once, with the same hooks and the same step.

The network runs under ``torch.func.vmap`` on parameters [K, d], and so do the hooks of the rules, on contexts whose
tensors are stacked. A hook that vmap refuses is called for one client after another. `LocalTrainer.step_function` makes
the step, as for a single client.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_leaves

from benchmark.engine.clients import ClientResult, ClientSide, Visit
from benchmark.engine.graphs import Step
from benchmark.engine.randomness import seed_torch
from benchmark.engine.records import Cost
from benchmark.engine.round_values import RoundValues
from benchmark.engine.state import FederationState
from benchmark.engine.training import ActiveRule, ClientWork, LocalTrainer, LoopResult
from benchmark.models.stacked import StackedModel
from methods.core.contexts import Batch, ClientContext, Loss, Phase
from methods.core.rules import MethodError
from methods.core.samples import to_device

COMMON = ("round", "rounds", "num_classes", "layout", "lr", "augmented")
"""Fields of a context that are the same for all clients of a round."""

STACKED = ("w", "buffers", "received", "state", "local")
"""Fields of a context whose tensors are stacked."""

log = logging.getLogger("fedtables")

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MethodError)
"""What vmap, or a hook under vmap, raises if it cannot go on. A mistake of the hook is raised again without vmap."""


class _PerClientError(RuntimeError):
    """A hook has read what is another value at each client."""


class _SharedContext(SimpleNamespace):
    """The context of one rule at all K clients, as seen under vmap. What it holds cannot be replaced."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{n: MappingProxyType(v) if isinstance(v, dict) else v for n, v in fields.items()})

    def __getattr__(self, name: str) -> Any:
        raise _PerClientError(name)


def stacked(values: Sequence[Any]) -> tuple[Any, Any]:
    """(the values of K clients as one, its dimension of clients), as ``vmap`` takes them; dicts item by item.

    Raises:
        _PerClientError: The values differ and cannot be stacked.
    """
    first = values[0]
    if all(value is first for value in values):
        return first, None
    if isinstance(first, dict) and all(value.keys() == first.keys() for value in values):
        parts = {key: stacked([value[key] for value in values]) for key in first}
        return {key: part for key, (part, _) in parts.items()}, {key: dim for key, (_, dim) in parts.items()}
    if isinstance(first, tuple) and all(len(value) == len(first) for value in values):
        items, dims = zip(*map(stacked, zip(*values, strict=True)), strict=True)
        return items, dims
    if isinstance(first, Tensor) and all(value.shape == first.shape for value in values):
        return torch.stack(list(values)), 0
    if isinstance(first, bool | int | float | str) and all(value == first for value in values):
        return first, None
    raise _PerClientError(f"values of type {type(first).__name__} differ")


def _part(value: Any, dim: Any, clients: slice) -> Any:
    """Those ``clients`` of what `stacked` returned."""
    if isinstance(dim, dict):
        return {key: _part(item, dim[key], clients) for key, item in value.items()}
    if isinstance(dim, tuple):
        return tuple(map(_part, value, dim, [clients] * len(dim)))
    return value if dim is None else value[clients]


@dataclass(frozen=True)
class StackedRule(ActiveRule):
    """One rule at K clients, for a step: its hooks take and return tensors [K, ...].

    Attributes:
        ctx: The context of the first of them.
        active: The rule at each client.
        fields: The stacked fields of its contexts and their dimensions; None if they cannot be stacked.
        accepted: Whether vmap accepts a hook, as far as it was tried. The others are called for each client.
    """

    active: Sequence[ActiveRule]
    fields: tuple[dict[str, Any], dict[str, Any]] | None
    accepted: dict[str, bool] = field(default_factory=dict)

    @property
    def contexts(self) -> list[ClientContext]:
        """What the rule may read at each client."""
        return [active.ctx for active in self.active]

    @classmethod
    def of(cls, active: Sequence[ActiveRule]) -> "StackedRule":
        """Stack the contexts of a rule."""
        try:
            fields = stacked([{name: getattr(a.ctx, name) for name in STACKED} for a in active])
        except _PerClientError:
            fields = None
        return cls(active[0].rule, active[0].ctx, active, fields)

    def part(self, clients: slice) -> "StackedRule":
        """The rule at some of the clients."""
        fields = None if self.fields is None else (_part(*self.fields, clients), self.fields[1])
        return replace(self, active=self.active[clients], fields=fields)

    def _together(self, hook: str, call: Callable[..., Tensor], *tensors: Any) -> Tensor | None:
        """``call(context, *tensors)`` for all clients at once; None if vmap refuses it."""
        if self.fields is None or not self.accepted.get(hook, True):
            return None
        values, dims = self.fields
        common = {name: getattr(self.ctx, name) for name in COMMON}

        def one(values: dict[str, Any], *tensors: Any) -> Tensor:
            return call(cast(ClientContext, _SharedContext(**common, **values)), *tensors)

        together = vmap(one, (dims, *[0] * len(tensors)), randomness="different")
        if hook in self.accepted:
            return together(values, *tensors)
        leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
        versions = [leaf._version for leaf in leaves]
        try:
            result = together(values, *tensors)
        except REFUSALS:
            result = None
        if versions != [leaf._version for leaf in leaves]:
            result = None  # the hook keeps something in its context; the client would not get it
        self.accepted[hook] = result is not None
        return result

    def loss(self, batch: Batch) -> Loss:
        """The rule's extra losses [K] on the batches of K clients."""
        weights: list[float] = []

        def extra(ctx: ClientContext, batch: Batch) -> Tensor:
            loss = self.rule.loss(ctx, batch)
            if isinstance(loss.ce_weight, Tensor):
                raise _PerClientError("ce_weight")
            weights.append(loss.ce_weight)
            return _tensor(loss.extra, batch.ce)

        together = self._together("loss", extra, batch)
        if together is not None:
            return Loss(together, weights[0])
        each = [a.loss(Batch(*(t[k] for t in batch))) for k, a in enumerate(self.active)]
        extras = torch.stack([_tensor(loss.extra, batch.ce) for loss in each])
        weights = [loss.ce_weight for loss in each]
        if len(set(weights)) == 1:
            return Loss(extras, weights[0])
        return Loss(
            extras, cast(float, torch.stack([_tensor(weight, batch.ce) for weight in weights]))
        )  # [K]

    def correct(self, w: Tensor, g: Tensor) -> None:
        """Let the rule correct the gradients ``g`` [K, d] at ``w`` [K, d], in place."""
        before = g if "correct" in self.accepted else g.clone()  # the first refusal may come in the middle

        def corrected(ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor:
            self.rule.correct(ctx, w, g)
            return g

        if self._together("correct", corrected, w, g) is None:
            g.copy_(before)
            for k, active in enumerate(self.active):
                active.correct(w[k], g[k])


def _tensor(value: Tensor | float, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else like.new_full((), value)


def train_together(
    clients: ClientSide,
    visits: Sequence[Visit],
    state: FederationState,
    cost: Cost,
    values: RoundValues,
) -> Iterator[ClientResult]:
    """Train clients side by side, or one after another if their method or data do not allow it."""
    if why := _refusal(clients.trainer, visits):
        if why not in clients.notes:
            clients.notes.add(why)
            log.info("train.stack=%d: clients are trained one by one because of %s.", clients.spec.stack, why)
        yield from (clients.train_alone(visit, state, cost, values) for visit in visits)
        return
    # Clients of one length can take all steps together, so they are put beside each other.
    visits = sorted(visits, key=lambda visit: -len(visit.work.data))
    w = torch.stack([visit.start for visit in visits])
    buffers = torch.stack([clients.start_buffers(state, visit.client) for visit in visits])
    clients.put(w[0], buffers[0], visits[0].head)
    works, phases = [visit.work for visit in visits], visits[0].phases
    loops = run_stacked(clients.trainer, works, w, buffers, phases, clients.schedule.lr(state.round))
    trained = sorted(zip(visits, w, buffers, loops, strict=True), key=lambda one: one[0].client)
    for visit, its_w, its_buffers, loop in trained:
        clients.put(its_w, its_buffers, visit.head)
        yield clients.finish(visit, loop, cost, values)


def _refusal(trainer: LocalTrainer, visits: Sequence[Visit]) -> str:
    """Why these clients cannot be trained side by side; nothing if they can."""
    if any(active.has("ascend") for active in visits[0].work.rules):
        return "the hook ascend"
    if len({visit.head and visit.head.key for visit in visits}) > 1:
        return "classifiers of different shapes"
    if len({visit.phases for visit in visits}) > 1:
        return "phases that differ between clients"
    if any(trainer.lacks_statistics(visit.work.data) for visit in visits):
        return "a client with a single sample, which BatchNorm cannot normalise"
    return ""


def run_stacked(
    trainer: LocalTrainer,
    works: Sequence[ClientWork],
    w: Tensor,
    buffers: Tensor,
    phases: Sequence[Phase],
    lr: float,
) -> list[LoopResult]:
    """Train K clients from ``w`` [K, d] and ``buffers`` [K, b], which change in place.

    Clients of unequal length are stepped together while their next batches have one size. This works best if the
    clients come in the order of their numbers of samples.
    """
    seed_torch(works[0].torch_seed, w.device)  # one seed for all of them
    g = torch.zeros_like(w)
    losses: list[list[Tensor]] = [[] for _ in works]
    sizes: list[list[int]] = [[] for _ in works]
    rules = [StackedRule.of(same) for same in zip(*(work.rules for work in works), strict=True)]
    for number, phase in enumerate(phases):
        trainer.set_mode(works[0].data, phase)
        steps: dict[tuple[int, int], Step] = {}
        velocity = trainer.velocity(w)
        for part, x, y, index in _batches(trainer, works, number, phase):
            clients = range(part.start, part.stop)
            if (step := steps.get((part.start, part.stop))) is None:
                network = StackedModel(trainer.model, w[part], g[part], buffers[part])
                theirs = [rule.part(part) for rule in rules]
                its = None if velocity is None else velocity[part]
                step = trainer.recorded(trainer.step_function(network, theirs, phase, lr, its), theirs)
                steps[part.start, part.stop] = step
            ce, _ = step(x, y, index)
            for k, value in zip(clients, ce.unbind(), strict=True):
                losses[k].append(value)
                sizes[k].append(y.shape[1])
    each = zip(works, losses, sizes, strict=True)
    return [trainer.result(work, phases, lr, its_losses, its_sizes) for work, its_losses, its_sizes in each]


def _batches(
    trainer: LocalTrainer, works: Sequence[ClientWork], number: int, phase: Phase
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Batches (clients, x [k, B, ...], y [k, B], positions [k, B]) of one phase for neighbours with one batch size."""
    data = [work.data for work in works]
    rows = pad_sequence([cast(Tensor, samples.rows) for samples in data], batch_first=True)
    labels = pad_sequence([samples.y for samples in data], batch_first=True)
    batch_size, epoch = trainer.spec.batch_size, 0
    left = [trainer.steps(len(samples), phase) for samples in data]
    while any(left):
        orders = [
            work.visits(number, epoch)[: most * batch_size] for work, most in zip(works, left, strict=True)
        ]
        padded = pad_sequence([torch.from_numpy(order) for order in orders], batch_first=True)
        positions = to_device(padded, rows.device)
        at, y = rows.gather(1, positions), labels.gather(1, positions)
        sizes = [trainer.sizes(len(samples))[:most] for samples, most in zip(data, left, strict=True)]
        for batch in range(max(map(len, sizes))):
            first = batch * batch_size
            next_sizes = [size[batch] if batch < len(size) else 0 for size in sizes]
            for size, neighbours in groupby(range(len(data)), key=next_sizes.__getitem__):
                members = list(neighbours)
                if size:
                    where = slice(members[0], members[-1] + 1), slice(first, first + size)
                    images = data[0].images[at[where].flatten()]
                    if trainer.augment is not None:
                        images = trainer.augment(images)
                    x = trainer.transform(images).unflatten(0, (len(members), size))
                    yield where[0], x, y[where], positions[where]
        left = [most - len(size) for most, size in zip(left, sizes, strict=True)]
        epoch += 1
