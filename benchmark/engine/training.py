"""The one local training loop."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from benchmark.config.schema import TrainConfig
from benchmark.engine.descent import Descent, descent
from benchmark.engine.graphs import Step, StepRecorder, Visit
from benchmark.engine.randomness import rewinder, seed_torch
from benchmark.models.flat import FlatModel
from benchmark.transforms.augmentation import Augment
from methods.core.contexts import Batch, ClientContext, Phase
from methods.core.rules import ClientRule, overrides
from methods.core.samples import Samples, to_device

CHUNK_BYTES = 16 << 20
"""Inputs are gathered and normalised this many bytes at a time: few kernel launches, bounded memory."""


@dataclass(frozen=True)
class ActiveRule:
    """A client rule with what it may read in this round."""

    rule: ClientRule
    ctx: ClientContext

    def has(self, hook: str) -> bool:
        return overrides(self.rule, hook)


@dataclass(frozen=True)
class ClientWork:
    """What one client trains on, with which rules, and its random draws.

    Attributes:
        order: ``order(phase, epoch, n)`` is the order in which the n samples are visited; both count from 0.
        draw: ``draw(phase, epoch)`` is the generator of weighted sampling.
        torch_seed: Seed of dropout and augmentation, so that neither the order nor the number of workers matters.
        visit: What recorded steps read of the rules; None: steps are taken as usual.
    """

    data: Samples
    rules: Sequence[ActiveRule]
    order: Callable[[int, int, int], np.ndarray]
    draw: Callable[[int, int], np.random.Generator]
    torch_seed: int
    visit: Visit | None = None

    @cached_property
    def _weights(self) -> np.ndarray | None:
        return next((w for a in self.rules if (w := a.rule.sample_weights(a.ctx)) is not None), None)

    def visits(self, phase: int, epoch: int) -> np.ndarray:
        """The positions [n] of the samples in the order of an epoch."""
        n, weights = len(self.data), self._weights
        if weights is None:
            return self.order(phase, epoch, n)
        return self.draw(phase, epoch).choice(n, size=n, replace=True, p=weights / weights.sum())


@dataclass(frozen=True)
class LoopResult:
    """What local training did.

    Attributes:
        steps: tau_k.
        step_norm: a_k, the total weight of the gradients in the update.
        losses: Mean cross-entropy of each batch [steps], on the device.
        sizes: Samples in each batch.
        samples: Samples that gradients were taken of; counted twice where a rule takes a second gradient.
        repeated: The part of ``samples`` that is from second gradients.
    """

    steps: int
    step_norm: float
    losses: Tensor
    sizes: Sequence[int]
    samples: int
    repeated: int


@dataclass
class LocalTrainer:
    """Runs local steps on the vector of ``model``.

    Attributes:
        augment: Changes stored images before ``transform``.
        recorder: On a GPU: records steps as CUDA graphs.
    """

    model: FlatModel
    spec: TrainConfig
    transform: Callable[[Tensor], Tensor]
    augment: Augment | None = None
    recorder: StepRecorder | None = None
    # The optimizers of recorded steps, by classifier: a graph writes to one place.
    _descents: dict[str | None, Descent] = field(default_factory=dict, init=False)

    def run(self, work: ClientWork, phases: Sequence[Phase], lr: float) -> LoopResult:
        """Train one client from the model's present values."""
        seed_torch(work.torch_seed, self.model.w.device)
        losses: list[Tensor] = []
        sizes: list[int] = []
        repeated = 0
        for number, phase in enumerate(phases):
            self._set_mode(work.data, phase)
            step = self._step_of(work, phase, lr)
            for x, y, index in self._phase_batches(work.data, phase, partial(work.visits, number)):
                ce, again = step(x, y, index)
                losses.append(ce)
                sizes.append(len(y))
                repeated += again * len(y)
        stacked = torch.stack(losses) if losses else self.model.w.new_empty(0)
        norm = self._step_norm(work, phases, lr)
        return LoopResult(len(sizes), norm, stacked, sizes, sum(sizes) + repeated, repeated)

    def recordable(self, rules: Sequence[ActiveRule]) -> tuple[Sequence[ActiveRule], Visit | None]:
        """The rules of a visit with all that their steps read at fixed places, if its steps can be recorded.

        Not if a step needs the host: for draws, or between two gradients.
        """
        taking = [active for active in rules if _takes_part(active)]
        if self.recorder is None or any(active.has("ascend") for active in taking):
            return rules, None
        visit = self.recorder.visit([active.rule for active in taking], [active.ctx for active in taking])
        if visit is None:
            return rules, None
        fixed = iter(visit.contexts)
        return [replace(one, ctx=next(fixed)) if _takes_part(one) else one for one in rules], visit

    def _step_of(self, work: ClientWork, phase: Phase, lr: float) -> Step:
        """The local step of one phase, with the optimizer's state at zero; recorded, where that can be done."""
        head = self.model.head_key
        if self.recorder is None or work.visit is None:
            return self.step_function(work.rules, phase, lr, descent(self.spec, self.model.w))
        if head not in self._descents:
            self._descents[head] = descent(self.spec, self.model.w)
        for part in self._descents[head].state:
            part.zero_()
        make = partial(self.step_function, work.rules, phase, lr, self._descents[head])
        return self.recorder.shared((phase, lr, head), work.visit, make)

    def _set_mode(self, data: Samples, phase: Phase) -> None:
        """Set the network's layers to training mode, or those of the body to evaluation mode where a phase wants it."""
        self.model.net.train()
        if phase.body_eval:
            self.model.net.body.eval()
        too_few = len(data) == 1 and self.model.has_batch_norm
        if self.spec.buffers == "frozen" or too_few:
            self.model.freeze_batch_norm()

    def _step_norm(self, work: ClientWork, phases: Sequence[Phase], lr: float) -> float:
        """The total weight of the gradients in the update."""
        proximal = sum(active.rule.proximal for active in work.rules)
        momentum = self.spec.momentum if self.spec.optimizer == "sgd" else 0.0
        norm = 0.0
        for phase in phases:
            shrink, damping = proximal * (lr if phase.lr is None else phase.lr), 0.0
            for _ in range(self.steps(len(work.data), phase)):
                damping = momentum * damping + 1 - shrink * norm
                norm += damping
        return norm

    # Batches -----------------------------------------------------------------------------------------------

    def sizes(self, n: int) -> list[int]:
        """Batch sizes of one epoch over n samples."""
        return batch_sizes(n, self.spec, self.model.has_batch_norm)

    def steps(self, n: int, phase: Phase | None = None) -> int:
        """How many steps a client with n samples takes in ``phase``, or in a round without phases of its own."""
        epochs, steps = self.spec.epochs, self.spec.steps
        if phase is not None and (phase.epochs is not None or phase.steps is not None):
            epochs, steps = phase.epochs, phase.steps
        per_epoch = len(self.sizes(n))
        if steps is None:
            return per_epoch * (epochs or 0)
        return steps if per_epoch else 0

    def _phase_batches(
        self, data: Samples, phase: Phase, visit: Callable[[int], np.ndarray]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches (x, y, positions) of one phase: its epochs, or its steps, going through the samples again."""
        n = len(data)
        sizes, left, epoch = self.sizes(n), self.steps(n, phase), 0
        while left > 0:
            yield from self._gather(data, visit(epoch), sizes[:left])
            left -= len(sizes)
            epoch += 1

    def _gather(
        self, data: Samples, order: np.ndarray, sizes: list[int]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches (x, y, index) of the given sizes, gathered and normalised a chunk at a time."""
        positions = to_device(torch.from_numpy(order), data.y.device)
        sample_bytes = max(1, data.stored(slice(1)).numel() * 4)
        per_chunk = max(1, CHUNK_BYTES // (sample_bytes * self.spec.batch_size))
        for first in range(0, len(sizes), per_chunk):
            group = sizes[first : first + per_chunk]
            where, positions = positions.tensor_split([sum(group)])
            images = data.stored(where)
            if self.augment is not None:
                images = self.augment(images)
            x, y = self.transform(images), data.y[where]
            yield from zip(x.split(group), y.split(group), where.split(group), strict=True)

    # One step ----------------------------------------------------------------------------------------------

    def step_function(
        self,
        rules: Sequence[ActiveRule],
        phase: Phase,
        lr: float,
        optimizer: Descent,
    ) -> Step:
        """One local step: loss, gradient, second gradient, corrections, clip, step of the optimizer.

        The step returns the mean cross-entropy, and whether it took a second gradient.
        """
        network, w, g = self.model, self.model.w, self.model.g
        with_loss = [a for a in rules if phase.losses and a.has("loss")]
        with_correction = [a for a in rules if a.has("correct")]
        climber = next((a for a in rules if a.has("ascend")), None)
        rate = lr if phase.lr is None else phase.lr
        mask = None if phase.groups is None else network.layout.mask(*phase.groups)
        mask = None if mask is None else to_device(mask, w.device).to(w.dtype)
        blind = climber if climber is not None and climber.rule.blind_ascent else None
        second = climber if blind is None else None
        moved = contextlib.nullcontext if blind is None else partial(self._moved, blind, mask)
        # Where nothing is cast, autocast would still take 2 % of the step of a small network.
        precision = torch.autocast(w.device.type, torch.bfloat16) if network.amp else contextlib.nullcontext()
        # Without it every backward pass makes its own.
        one = torch.ones((), dtype=w.dtype, device=w.device)

        def gradient(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
            network.forget_gradients()
            with precision:
                objective, ce = _objective(network, with_loss, x, y, index)
            objective.backward(one)
            network.collect_gradients()
            return ce.detach()

        def step(x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, bool]:
            rewind = None if second is None else rewinder(w.device, _generators(with_loss))
            with moved():
                ce = gradient(x, y, index)
            again = False
            if second is not None and rewind is not None:
                again = self._second_gradient(second, mask, rewind, lambda: gradient(x, y, index))
            with torch.no_grad():
                for active in with_correction:
                    active.rule.correct(active.ctx, w, g)
                self._descend(optimizer, g, mask, rate)
            return ce, again

        return step

    def _descend(self, optimizer: Descent, g: Tensor, mask: Tensor | None, rate: float) -> None:
        """Clip the gradient and let the optimizer step; only the groups of ``mask`` move."""
        if mask is not None:
            g.mul_(mask)
        if self.spec.clip is not None:
            g.mul_((self.spec.clip / (g.norm() + 1e-12)).clamp(max=1.0))
        optimizer.step(self.model.w, g, rate, mask)

    @contextlib.contextmanager
    def _moved(self, climber: ActiveRule, mask: Tensor | None) -> Iterator[None]:
        """Let w be w + e inside the block, with e from a ``climber`` that reads no gradient, within ``mask``."""
        w = self.model.w
        with torch.no_grad():
            e = climber.rule.ascend(climber.ctx, w, self.model.g)
            start = w.clone()
            if e is not None:
                w.add_(e if mask is None else e * mask)
        yield
        with torch.no_grad():
            w.copy_(start)

    def _second_gradient(
        self,
        climber: ActiveRule,
        mask: Tensor | None,
        rewind: Callable[[], None],
        gradient: Callable[[], Tensor],
    ) -> bool:
        """Replace g by the gradient at w + e, with e from ``climber``; False if it wants none.

        Only the groups of ``mask`` move. ``rewind`` sets all generators back to the start of the first gradient, so
        that both have the same draws. w and BatchNorm's statistics end as they were before the second pass.
        """
        w, g, buffers = self.model.w, self.model.g, self.model.buffers
        with torch.no_grad():
            if mask is not None:
                g.mul_(mask)
            e = climber.rule.ascend(climber.ctx, w, g)
            if e is None:
                return False
            start, statistics = w.clone(), buffers.clone()
            w.add_(e)
        rewind()
        gradient()
        with torch.no_grad():
            w.copy_(start)
            buffers.copy_(statistics)
        return True


def batch_sizes(n: int, spec: TrainConfig, has_batch_norm: bool) -> list[int]:
    """Batch sizes of one epoch over n samples."""
    sizes, rest = [spec.batch_size] * (n // spec.batch_size), n % spec.batch_size
    # A single sample has no batch statistics; it is left out if the client has another batch.
    alone = rest == 1 and spec.buffers != "frozen" and has_batch_norm
    if rest and not (sizes and (spec.drop_last or alone)):
        sizes.append(rest)
    return sizes


def _objective(
    network: FlatModel, with_loss: Sequence[ActiveRule], x: Tensor, y: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """(objective, mean cross-entropy) of one batch: L = prod(ce_weight) CE + extra losses."""
    z, logits, ce = network.forward(x, y)
    if not with_loss:
        return ce, ce
    batch = Batch(x, y, z, logits, ce, index)
    terms = [active.rule.loss(active.ctx, batch) for active in with_loss]
    weight = math.prod(term.ce_weight for term in terms)
    objective = ce if isinstance(weight, int | float) and weight == 1 else weight * ce
    for term in terms:
        if isinstance(term.extra, Tensor):  # a number has no gradient
            objective = objective + term.extra
    return objective, ce


def _takes_part(active: ActiveRule) -> bool:
    """Whether a rule takes part in local steps."""
    return any(map(active.has, ("loss", "correct", "ascend")))


def _generators(rules: Sequence[ActiveRule]) -> list[np.random.Generator]:
    """The generators that rules keep during local training."""
    kept = (value for active in rules for value in active.ctx.local.values())
    return [value for value in kept if isinstance(value, np.random.Generator)]
