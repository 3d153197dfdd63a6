"""A network's parameters as one vector, its gradients as a second, its buffers as a third."""

import copy
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from benchmark.models.base import Net
from methods.core.contexts import FrozenModel, Head
from methods.core.vectors import BODY, HEAD, NORM, OTHER_NORM, Layout

# vmap runs some layers (adaptive pooling of ResNets) sample by sample, and warns. A user cannot change that.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batch")

OTHER_NORM_LAYERS = (_InstanceNorm, nn.GroupNorm, nn.LayerNorm)


def _groups(net: Net) -> dict[int, str]:
    """Group of each parameter, by its id: norm (BatchNorm) or other_norm by type of layer, else head or body."""
    groups = {id(p): BODY for p in net.parameters()}
    groups |= {id(p): HEAD for p in net.classifier.parameters()}
    for module in net.modules():
        if isinstance(module, (_BatchNorm, *OTHER_NORM_LAYERS)):
            kind = NORM if isinstance(module, _BatchNorm) else OTHER_NORM
            groups |= {id(p): kind for p in module.parameters(recurse=False)}
    return groups


def _shifts(tensor: Tensor) -> bool:
    """Whether what comes behind a tensor does not begin at a multiple of four numbers; such tensors come last.

    cuDNN's BatchNorm reads 16 bytes at a time and fails elsewhere: CUDNN_STATUS_EXECUTION_FAILED, misaligned address.
    """
    return tensor.numel() % 4 != 0


def focal_loss(logits: Tensor, y: Tensor, gamma: float, weights: Tensor | None) -> Tensor:
    """Mean of weights[y] (1 - p_y)^gamma (-log p_y), for logits [B, C] and labels y [B] (Lin et al. 2017, Eq. 5)."""
    losses = F.cross_entropy(logits, y, reduction="none")
    focal = (1 - torch.exp(-losses)).pow(gamma) * losses
    return (focal if weights is None else weights[y] * focal).mean()


class FlatModel:
    """A network whose parameters are views into one vector ``w`` [d]; its gradients are collected in ``g`` [d].

    The classifier comes last in the vector, so that other classifiers (``heads``, by key; their first values are
    ``initial_heads``) can replace it: after `use_head`, ``w``, ``g`` and ``layout`` are those of the body and that
    head. BatchNorm's statistics and counters are views into ``buffers``, where a counter is a float.
    """

    def __init__(
        self,
        net: Net,
        heads: Mapping[str | None, nn.Module] | None = None,
        *,
        device: torch.device | None = None,
        channels_last: bool = False,
        amp: bool = False,
    ) -> None:
        """Take over ``net`` and ``heads``: views replace their tensors. ``amp``: local training uses bf16 autocast.

        The head with the key None replaces the classifier of ``net``.
        """
        self._heads: dict[str | None, nn.Module] = dict(heads or {})
        net.classifier = self._heads.pop(None, net.classifier)
        self.net = net.to(device)
        self.channels_last, self.amp = channels_last, amp
        self.criterion: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
        # All heads share one place. The model's own classifier is bound last, so that w starts with its values.
        self._heads[None] = net.classifier
        groups = _groups(net)
        named = sorted(net.body.named_parameters(), key=lambda pair: _shifts(pair[1]))
        body = [(f"body.{n}", tuple(p.shape), groups[id(p)]) for n, p in named]
        self.layouts = {
            key: Layout.of(
                [*body, *((f"classifier.{n}", tuple(p.shape), HEAD) for n, p in head.named_parameters())],
                channels_last,
            )
            for key, head in self._heads.items()
        }
        self.body_size = Layout.of(body).size
        longest = max(layout.size for layout in self.layouts.values())
        first = next(net.parameters())
        self._w = torch.empty(longest, dtype=first.dtype, device=first.device)
        self._g = torch.zeros_like(self._w)
        self._bind(dict(net.body.named_parameters(prefix="body")), self.layouts[None])
        self.initial_heads: dict[str, Tensor] = {}
        for key, head in self._heads.items():
            self._bind(dict(head.to(first).named_parameters(prefix="classifier")), self.layouts[key])
            if key is not None:
                self.initial_heads[key] = self._w[self.body_size : self.layouts[key].size].clone()
        self._bind_buffers()
        self.use_head(None)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features [B, h], logits [B, C] and mean cross-entropy [] of inputs x [B, ...] with labels y [B].

        Another ``criterion`` takes the place of the cross-entropy in all that is trained.
        """
        z = self.net.features(x)
        logits = self.net.classify(z)
        return z, logits, self.criterion(logits, y)

    def _bind(self, parameters: dict[str, nn.Parameter], layout: Layout) -> None:
        for entry in layout.entries:
            if entry.name not in parameters:
                continue
            parameter = parameters[entry.name]
            view = entry.view(self._w)
            view.copy_(parameter.data)
            parameter.data = view

    def _bind_buffers(self) -> None:
        # Other whole numbers than BatchNorm's counter of batches are constants, as indices.
        named = [
            (name, b)
            for name, b in self.net.named_buffers()
            if b.is_floating_point() or name.endswith("num_batches_tracked")
        ]
        named.sort(key=lambda pair: _shifts(pair[1]))
        self.buffer_layout = Layout.of((name, tuple(b.shape), NORM) for name, b in named)
        self.buffers = torch.zeros(self.buffer_layout.size, dtype=self._w.dtype, device=self._w.device)
        self.counters = torch.zeros(self.buffer_layout.size, dtype=torch.bool, device=self._w.device)
        for entry, (name, buffer) in zip(self.buffer_layout.entries, named, strict=True):
            view = entry.view(self.buffers)
            view.copy_(buffer)
            self.counters[entry.start : entry.stop] = name.endswith("num_batches_tracked")
            owner, _, leaf = name.rpartition(".")
            # .data has the same storage but a version counter of its own. Otherwise autograd would take an update of
            # one statistic for an update of all of them.
            self.net.get_submodule(owner)._buffers[leaf] = view.data

    def use_head(self, key: str | None) -> None:
        """Put the classifier ``key`` (None: the model's own) behind the body."""
        self.head_key = key
        self.net.classifier = self._heads[key]
        self.layout = self.layouts[key]
        self.w = self._w[: self.layout.size]
        self.g = self._g[: self.layout.size]

    @cached_property
    def _gradients(self) -> dict[str | None, list[tuple[nn.Parameter, Tensor]]]:
        """The parameters of the body and of each classifier, and the places of their gradients in ``g``."""
        places = {}
        body = dict(self.net.body.named_parameters(prefix="body"))
        for key, head in self._heads.items():
            named = body | dict(head.named_parameters(prefix="classifier"))
            places[key] = [(named[e.name], e.view(self._g)) for e in self.layouts[key].entries]
        return places

    def forget_gradients(self) -> None:
        """Let the next backward pass make new gradients. Adding to old ones takes a kernel for each parameter."""
        for parameter, _ in self._gradients[self.head_key]:
            parameter.grad = None

    def collect_gradients(self) -> None:
        """Copy the gradients of the last backward pass to ``g``, in one kernel on a GPU; zeros for those unused."""
        parameters = self._gradients[self.head_key]
        used = [(place, parameter.grad) for parameter, place in parameters if parameter.grad is not None]
        if len(used) < len(parameters):
            self.g.zero_()
        if used:
            places, values = zip(*used, strict=True)
            torch._foreach_copy_(places, values)

    @cached_property
    def _frozen_modules(self) -> tuple[nn.Module, dict[str | None, nn.Module]]:
        """Body and classifiers in evaluation mode, with the tensors of the network; `frozen` lends them others."""
        modules = (self.net, *self._heads.values())
        shared = {id(t): t for module in modules for t in (*module.parameters(), *module.buffers())}
        body, heads = copy.deepcopy((self.net.body, self._heads), shared)
        return body.eval(), {key: head.eval() for key, head in heads.items()}

    def _named(self, module: nn.Module, vector: Tensor) -> dict[str, Tensor]:
        """The parameters of ``module`` as views into the first numbers of ``vector``."""
        shapes = [(name, tuple(p.shape), BODY) for name, p in module.named_parameters()]
        return {entry.name: entry.view(vector) for entry in Layout.of(shapes, self.channels_last).entries}

    def frozen(self, w: Tensor, buffers: Tensor, head: Head | None = None) -> FrozenModel:
        """The network with the values w [d] and ``buffers``, without a copy; ``head`` replaces its classifier."""
        body, heads = self._frozen_modules
        key, head_vector = head or Head(None, w[self.body_size :])
        body_values = self._named(body, w)
        for entry in self.buffer_layout.entries:
            body_values[entry.name.removeprefix("body.")] = entry.view(buffers)

        @torch.no_grad()
        def features(x: Tensor) -> Tensor:
            return functional_call(body, body_values, (x,))

        @torch.no_grad()
        def classify(z: Tensor) -> Tensor:
            return functional_call(heads[key], self._named(heads[key], head_vector), (z,))

        return FrozenModel(features, classify)

    def gradients(self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode."""
        body, heads = self._frozen_modules
        net = Net(body, heads[self.head_key], self.net.feature_dim)
        values = {entry.name: entry.view(w) for entry in self.layout.entries}
        statistics = {entry.name: entry.view(buffers) for entry in self.buffer_layout.entries}

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            logits = functional_call(net, (parameters, statistics), (x[None],))
            return F.cross_entropy(logits, y[None])

        by_name = vmap(grad(loss), in_dims=(None, 0, 0))(values, x, y)
        gradients = w.new_empty(len(x), len(w))
        for entry in self.layout.entries:
            gradient = by_name[entry.name]
            if entry.channels_last:
                gradient = gradient.permute(0, 1, 3, 4, 2)
            gradients[:, entry.start : entry.stop] = gradient.flatten(1)
        return gradients

    @property
    def has_batch_norm(self) -> bool:
        """Whether training mode needs more than one sample per batch."""
        return any(isinstance(m, _BatchNorm) for m in self.net.modules())

    def freeze_batch_norm(self) -> None:
        """Let BatchNorm layers use their running statistics without updating them. Their affine part still trains."""
        for layer in self.net.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
