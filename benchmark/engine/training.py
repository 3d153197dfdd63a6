"""The one local training loop."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.config.schema import TrainConfig
from benchmark.engine.randomness import rewinder, seed_torch
from benchmark.models.flat import FlatModel
from benchmark.transforms.augmentation import Augment
from methods.core.contexts import Batch, ClientContext, Phase
from methods.core.rules import ClientRule, overrides
from methods.core.samples import Samples

CHUNK_BYTES = 16 << 20
"""Inputs are gathered and normalised this many bytes at a time: few kernel launches, bounded memory."""


class ActiveRule(NamedTuple):
    """A client rule with what it may read in this round."""

    rule: ClientRule
    ctx: ClientContext


@dataclass(frozen=True)
class LoopResult:
    """What local training did.

    Attributes:
        steps: tau_k.
        step_norm: a_k, the total weight of the gradients in the update.
        loss: Mean cross-entropy.
        samples: Samples that gradients were taken of; counted twice where a rule takes a second gradient.
        repeated: The part of ``samples`` that is from second gradients.
    """

    steps: int
    step_norm: float
    loss: float
    samples: int
    repeated: int


@dataclass
class LocalTrainer:
    """Runs local SGD on the vector of ``model``. ``augment`` changes stored images before ``transform``."""

    model: FlatModel
    spec: TrainConfig
    transform: Callable[[Tensor], Tensor]
    augment: Augment | None = None

    def run(
        self,
        data: Samples,
        rules: Sequence[ActiveRule],
        phases: Sequence[Phase],
        *,
        lr: float,
        order: Callable[[int, int, int], np.ndarray],
        draw: Callable[[int, int], np.random.Generator],
        torch_seed: int,
    ) -> LoopResult:
        """Train from the model's present values.

        ``order(phase, epoch, n)`` is the order in which the n samples are visited, ``draw(phase, epoch)`` the generator
        of weighted sampling; phases and their epochs count from 0. ``torch_seed`` seeds dropout and augmentation, so
        that neither the order nor the number of workers matters.
        """
        model, n = self.model, len(data)
        seed_torch(torch_seed, model.w.device)
        model.net.train()
        if self.spec.buffers == "frozen" or (n == 1 and model.has_batch_norm):
            model.freeze_batch_norm()
        weights = next((w for a in rules if (w := a.rule.sample_weights(a.ctx)) is not None), None)

        def visit(phase: int, epoch: int) -> np.ndarray:
            if weights is None:
                return order(phase, epoch, n)
            return draw(phase, epoch).choice(n, size=n, replace=True, p=weights / weights.sum())

        proximal = sum(a.rule.proximal for a in rules)
        losses: list[Tensor] = []
        sizes: list[int] = []
        norm, repeated = 0.0, 0
        for number, phase in enumerate(phases):
            step = self.step_function(rules if phase.losses else [], rules, phase, lr)
            shrink = proximal * (lr if phase.lr is None else phase.lr)
            damping = 0.0
            for x, y, index in self._phase_batches(data, phase, partial(visit, number)):
                ce, again = step(x, y, index)
                losses.append(ce)
                sizes.append(len(y))
                repeated += again * len(y)
                damping = self.spec.momentum * damping + 1 - shrink * norm
                norm += damping
        return LoopResult(len(sizes), norm, _mean_loss(losses, sizes), sum(sizes) + repeated, repeated)

    # Batches -----------------------------------------------------------------------------------------------

    def _sizes(self, n: int) -> list[int]:
        """Batch sizes of one epoch over n samples."""
        batch = self.spec.batch_size
        sizes = [batch] * (n // batch)
        rest = n % batch
        # A single sample has no batch statistics; it is left out if the client has another batch.
        alone = rest == 1 and self.spec.buffers != "frozen" and self.model.has_batch_norm
        useless = self.spec.drop_last or alone
        if rest and not (sizes and useless):
            sizes.append(rest)
        return sizes

    def steps(self, n: int, phase: Phase | None = None) -> int:
        """How many steps a client with n samples takes in ``phase``, or in a round without phases of its own."""
        epochs, steps = self.spec.epochs, self.spec.steps
        if phase is not None and (phase.epochs is not None or phase.steps is not None):
            epochs, steps = phase.epochs, phase.steps
        per_epoch = len(self._sizes(n))
        if steps is None:
            return per_epoch * (epochs or 0)
        return steps if per_epoch else 0

    def _phase_batches(
        self, data: Samples, phase: Phase, visit: Callable[[int], np.ndarray]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches (x, y, positions) of one phase: its epochs, or its steps, going through the samples again."""
        n = len(data)
        sizes, left, epoch = self._sizes(n), self.steps(n, phase), 0
        while left > 0:
            yield from self._gather(data, visit(epoch), sizes[:left])
            left -= len(sizes)
            epoch += 1

    def _gather(
        self, data: Samples, order: np.ndarray, sizes: list[int]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches (x, y, index) of the given sizes, gathered and normalised a chunk at a time."""
        positions = torch.from_numpy(order).to(data.y.device)
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

    def _objective(
        self, with_loss: Sequence[ActiveRule], x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(objective, mean cross-entropy) of one batch: L = prod(ce_weight) CE + extra losses."""
        z = self.model.features(x)
        logits = self.model.net.classify(z)
        ce = F.cross_entropy(logits, y)
        if not with_loss:
            return ce, ce
        batch = Batch(x, y, z, logits, ce, index)
        terms = [active.rule.loss(active.ctx, batch) for active in with_loss]
        weight = math.prod(term.ce_weight for term in terms)
        objective = ce if weight == 1 else weight * ce
        for term in terms:
            if isinstance(term.extra, Tensor):  # a number has no gradient
                objective = objective + term.extra
        return objective, ce

    def step_function(
        self, loss_rules: Sequence[ActiveRule], rules: Sequence[ActiveRule], phase: Phase, lr: float
    ) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, bool]]:
        """One local step: loss, gradient, second gradient, corrections, clip, weight decay, momentum, step.

        The step returns the mean cross-entropy, and whether it took a second gradient.
        """
        model, spec = self.model, self.spec
        w, g = model.w, model.g
        with_loss = [a for a in loss_rules if overrides(a.rule, "loss")]
        with_correction = [a for a in rules if overrides(a.rule, "correct")]
        climber = next((a for a in rules if overrides(a.rule, "ascend")), None)
        rate = lr if phase.lr is None else phase.lr
        mask = None if phase.groups is None else model.layout.mask(*phase.groups).to(w.device, w.dtype)
        blind = climber if climber is not None and climber.rule.blind_ascent else None
        second = climber if blind is None else None
        moved = contextlib.nullcontext if blind is None else partial(self._moved, blind, mask)
        velocity = torch.zeros_like(w) if spec.momentum else None
        kept = [value for a in with_loss for value in a.ctx.local.values()]
        generators = [value for value in kept if isinstance(value, np.random.Generator)]
        # Where nothing is cast, autocast would still take 2 % of the step of a small network.
        precision = torch.autocast(w.device.type, torch.bfloat16) if model.amp else contextlib.nullcontext()
        one = torch.ones((), dtype=w.dtype, device=w.device)  # else every backward pass makes its own

        def gradient(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
            model.forget_gradients()
            with precision:
                objective, ce = self._objective(with_loss, x, y, index)
            objective.backward(one)
            model.collect_gradients()
            return ce.detach()

        def step(x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, bool]:
            rewind = None if second is None else rewinder(w.device, generators)
            with moved():
                ce = gradient(x, y, index)
            again = False
            if second is not None and rewind is not None:
                again = self._second_gradient(second, mask, rewind, lambda: gradient(x, y, index))
            with torch.no_grad():
                for active in with_correction:
                    active.rule.correct(active.ctx, w, g)
                self._descend(mask, velocity, rate)
            return ce, again

        return step

    def _descend(self, mask: Tensor | None, velocity: Tensor | None, rate: float) -> None:
        """Clip the gradient, add weight decay, pass it through momentum, and step; only the groups of ``mask`` move."""
        w, g, spec = self.model.w, self.model.g, self.spec
        if mask is not None:
            g.mul_(mask)
        if spec.clip is not None:
            g.mul_((spec.clip / (g.norm() + 1e-12)).clamp(max=1.0))
        if spec.weight_decay:
            g.add_(w, alpha=spec.weight_decay)
            if mask is not None:
                g.mul_(mask)  # Weight decay must not move a frozen group either.
        if velocity is None:
            w.add_(g, alpha=-rate)
        else:
            velocity.mul_(spec.momentum).add_(g)
            w.add_(velocity, alpha=-rate)

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


def _mean_loss(losses: list[Tensor], sizes: list[int]) -> float:
    """Mean of the batches' mean losses over the samples. The losses wait for the device once, not in every step."""
    if not losses:
        return 0.0
    values = torch.stack(losses).cpu().numpy()
    with np.errstate(over="ignore"):  # a run that diverges
        total = np.cumsum(values * np.asarray(sizes, values.dtype))[-1]
    return float(total) / sum(sizes)
