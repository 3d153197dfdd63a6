"""Models, split into ``features`` and ``classify``, and their view as one parameter vector."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from benchmark.errors import ConfigError, nearest
from benchmark.models.pretrained import (
    EFFICIENTNET_B0,
    MOBILENETV2,
    RESNET50,
    Reader,
    Weights,
    load_weights,
)
from methods.core.vectors import BODY, HEAD, NORM, OTHER_NORM, Layout

# vmap takes some layers sample by sample (adaptive pooling of ResNets); who trains can do nothing about it.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batch")

OTHER_NORM_LAYERS = (_InstanceNorm, nn.GroupNorm, nn.LayerNorm)


class Net(nn.Module):
    """A network in two parts: a body that makes features [B, h] and a classifier [B, h] -> [B, C]."""

    def __init__(self, body: nn.Module, classifier: nn.Module, feature_dim: int) -> None:
        """``feature_dim`` is h."""
        super().__init__()
        self.body = body
        self.classifier = classifier
        self.feature_dim = feature_dim

    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of inputs [B, c, H, W]."""
        return self.body(x)

    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, C] of features [B, h]."""
        return self.classifier(z)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of inputs [B, c, H, W]."""
        return self.classify(self.features(x))


# The registry --------------------------------------------------------------------------------------------------

Builder = Callable[..., Net]
_models: dict[str, Builder] = {}
_weights: dict[str, Weights] = {}


def model(name: str, weights: Weights | None = None) -> Callable[[Builder], Builder]:
    """Register a builder ``(num_classes, channels, height, width, **parameters) -> Net``.

    With ``weights`` the model has the parameter `pretrained`: these go into its body, the classifier stays as drawn.
    """

    def decorate(builder: Builder) -> Builder:
        if name in _models:
            raise RuntimeError(f"two models are called {name!r}")
        _models[name] = builder
        if weights is not None:
            _weights[name] = weights
        return builder

    return decorate


def model_names() -> list[str]:
    """Sorted names of the registered models."""
    return sorted(_models)


def weights_of(name: str) -> Weights | None:
    """The trained weights that a model can start from; None where there are none."""
    return _weights.get(name)


@dataclass(frozen=True)
class Features:
    """What every model may put behind its body.

    Attributes:
        projection: width of a projection head (Linear, ReLU, Linear) behind the body; its output are then the features
            (MOON's and FedProc's code: 256); 0 for none.
        normalize_features: bring the features of every sample to length 1 (FedProc's code).
        feature_dropout: share of the features that is dropped in training.
    """

    projection: int = 0
    normalize_features: bool = False
    feature_dropout: float = 0.0

    def __post_init__(self) -> None:
        """`ConfigError` for a value that is not allowed."""
        allowed = {
            "projection": (_is_count(self.projection), "a whole number, 0 for none"),
            "normalize_features": (isinstance(self.normalize_features, bool), "true, false"),
            "feature_dropout": (_is_share(self.feature_dropout), "a number from 0 to below 1"),
        }
        for key, (fits, what) in allowed.items():
            if not fits:
                raise ConfigError(f"model.{key}: came {getattr(self, key)!r}. Allowed: {what}.")

    def behind(self, net: Net, num_classes: int) -> Net:
        """``net`` with these; itself if there are none."""
        layers: list[nn.Module] = []
        if self.projection:
            h = net.feature_dim
            layers += [nn.Linear(h, h), nn.ReLU(inplace=True), nn.Linear(h, self.projection)]
        if self.normalize_features:
            layers.append(UnitLength())
        if self.feature_dropout:
            layers.append(nn.Dropout(self.feature_dropout))
        if not layers:
            return net
        body = nn.Sequential(net.body, *layers)
        if not self.projection:
            return Net(body, net.classifier, net.feature_dim)
        return Net(body, nn.Linear(self.projection, num_classes), self.projection)


class UnitLength(nn.Module):
    """Rows brought to length 1."""

    def forward(self, z: Tensor) -> Tensor:
        """z / ||z|| of features [B, h]."""
        return F.normalize(z)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def build_net(
    name: str,
    num_classes: int,
    shape: tuple[int, int, int],
    parameters: dict[str, Any],
    seed: int,
    read: Reader | None = None,
) -> Net:
    """Build a network for images of ``shape`` (channels, height, width), its weights drawn from ``seed``.

    Every model takes the parameters of `Features`; with ``pretrained`` the body's weights come from ``read`` instead.
    Raises :class:`ConfigError` for an unknown name or parameter, and for weights that cannot be used.
    """
    if name not in _models:
        raise ConfigError(
            f"model.name: no model is called {name!r}.{nearest(name, _models)} Known: {', '.join(model_names())}."
        )
    signature = inspect.signature(_models[name]).parameters
    common = [field.name for field in fields(Features)]
    allowed = [key for key, p in signature.items() if p.kind is p.KEYWORD_ONLY] + common
    allowed += ["pretrained"] if name in _weights else []
    for key in parameters:
        if key not in allowed:
            known = ", ".join(allowed)
            raise ConfigError(
                f"model.{key}: unknown parameter of {name}.{nearest(key, allowed)} Allowed: {known}."
            )
    features = Features(**{key: value for key, value in parameters.items() if key in common})
    own = {key: value for key, value in parameters.items() if key not in (*common, "pretrained")}
    # Initialisers draw from torch's own generator; it is put back, so building a model moves no other draw.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _models[name](num_classes, *shape, **own)
        if _wants_weights(parameters, shape[0]):
            if read is None:
                raise ConfigError("model.pretrained: came true, but no trained weights can be read here.")
            load_weights(net.body, read(_weights[name]), _weights[name])
        return features.behind(net, num_classes)


def _wants_weights(parameters: Mapping[str, Any], channels: int) -> bool:
    pretrained, multiplier = parameters.get("pretrained", False), parameters.get("width_multiplier", 1)
    if not isinstance(pretrained, bool):
        raise ConfigError(f"model.pretrained: came {pretrained!r}. Allowed: true, false.")
    if pretrained and channels != 3:
        raise ConfigError(
            f"model.pretrained: came true for images with {channels} channel(s); trained weights are for 3. "
            "Set it to false, or choose other data."
        )
    if pretrained and multiplier != 1:
        raise ConfigError(
            f"model.pretrained: came true with model.width_multiplier={multiplier}; trained weights are for 1. "
            "Set one of the two back."
        )
    return pretrained


def _conv_net(
    channels: int, height: int, width: int, num_classes: int, filters: tuple[int, int], hidden: int
) -> Net:
    body = nn.Sequential(
        nn.Conv2d(channels, filters[0], 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(filters[0], filters[1], 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(filters[1] * (height // 4) * (width // 4), hidden),
        nn.ReLU(inplace=True),
    )
    return Net(body, nn.Linear(hidden, num_classes), hidden)


@model("tiny_mlp")
def tiny_mlp(
    num_classes: int, channels: int, height: int, width: int, *, units: int = 64, hidden: int = 32
) -> Net:
    """Two hidden layers of ``units`` and ``hidden`` neurons: for 8 x 8 digits, three times as fast as the tiny CNN."""
    body = nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, units),
        nn.ReLU(inplace=True),
        nn.Linear(units, hidden),
        nn.ReLU(inplace=True),
    )
    return Net(body, nn.Linear(hidden, num_classes), hidden)


@model("tiny_cnn")
def tiny_cnn(num_classes: int, channels: int, height: int, width: int, *, hidden: int = 32) -> Net:
    """Two convolutions (8, 16 filters) and one hidden layer: for 8 x 8 digits, a few thousand parameters."""
    return _conv_net(channels, height, width, num_classes, (8, 16), hidden)


@model("small_cnn")
def small_cnn(num_classes: int, channels: int, height: int, width: int, *, hidden: int = 128) -> Net:
    """Two convolutions (16, 32 filters) and one hidden layer: for 28 x 28 and 32 x 32 images."""
    return _conv_net(channels, height, width, num_classes, (16, 32), hidden)


def _from_timm(network: Any, num_classes: int) -> Net:
    feature_dim = int(network.num_features)
    network.reset_classifier(0)
    return Net(network, nn.Linear(feature_dim, num_classes), feature_dim)


def _stages(width_multiplier: float, multiple: int = 1) -> tuple[int, ...]:
    """Channels of a ResNet's four stages, each a ``multiple``."""
    if not isinstance(width_multiplier, int | float) or not 0 < width_multiplier <= 8:
        raise ConfigError(
            f"model.width_multiplier: came {width_multiplier!r}. Allowed: a number above 0, 8 at most."
        )
    return tuple(
        max(1, round(usual * width_multiplier / multiple)) * multiple for usual in (64, 128, 256, 512)
    )


def _resnet18_32(num_classes: int, channels: int, stages: tuple[int, ...], **layers: Any) -> Net:
    import timm  # here, not above: it takes seconds to import, and the small models do not need it

    network = timm.create_model(
        "resnet18", pretrained=False, num_classes=num_classes, in_chans=channels, channels=stages, **layers
    )
    network.conv1 = nn.Conv2d(channels, 64, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return _from_timm(network, num_classes)


@model("resnet18_32")
def resnet18_32(
    num_classes: int, channels: int, height: int, width: int, *, width_multiplier: float = 1
) -> Net:
    """ResNet-18 (He et al. 2016) with the 32-pixel stem: one 3 x 3 convolution, no pooling. BatchNorm.

    ``width_multiplier``: factor on the channels of every layer behind the stem; below 1 for trials.
    """
    return _resnet18_32(num_classes, channels, _stages(width_multiplier))


@model("resnet18_gn")
def resnet18_gn(
    num_classes: int,
    channels: int,
    height: int,
    width: int,
    *,
    groups: int = 2,
    width_multiplier: float = 1,
) -> Net:
    """`resnet18_32` with GroupNorm of ``groups`` groups in place of BatchNorm (FedDisco's and FedSDC's code)."""
    import timm

    norm = partial(timm.layers.GroupNorm, num_groups=groups)
    return _resnet18_32(num_classes, channels, _stages(width_multiplier, groups), norm_layer=norm)


@model("resnet50", weights=RESNET50)
def resnet50(num_classes: int, channels: int, height: int, width: int, *, width_multiplier: float = 1) -> Net:
    """ResNet-50 (He et al. 2016; as torchvision's, with the stride in the 3 x 3 convolution). BatchNorm.

    ``width_multiplier``: as of `resnet18_32`.
    """
    import timm

    network = timm.create_model(
        "resnet50",
        pretrained=False,
        num_classes=num_classes,
        in_chans=channels,
        channels=_stages(width_multiplier),
    )
    return _from_timm(network, num_classes)


@model("efficientnet_b0", weights=EFFICIENTNET_B0)
def efficientnet_b0(
    num_classes: int, channels: int, height: int, width: int, *, drop_path: float = 0.0, hidden: int = 0
) -> Net:
    """EfficientNet-b0 (Tan & Le 2019). BatchNorm.

    ``drop_path``: share of samples that skip the last block in training, growing from 0 at the first. ``hidden``: width
    of a layer (Linear, ReLU) between the pooled 1280 features and the classifier, 0 for none.
    """
    import timm

    network = timm.create_model(
        "efficientnet_b0",
        pretrained=False,
        num_classes=num_classes,
        in_chans=channels,
        drop_path_rate=_share("drop_path", drop_path),
    )
    net = _from_timm(network, num_classes)
    if not _is_count(hidden):
        raise ConfigError(f"model.hidden: came {hidden!r}. Allowed: a whole number, 0 for none.")
    if hidden:
        network.classifier = nn.Sequential(nn.Linear(net.feature_dim, hidden), nn.ReLU(inplace=True))
        return Net(network, nn.Linear(hidden, num_classes), hidden)
    return net


MOBILENETV2_WIDTHS = {
    0.35: "mobilenetv2_035",
    0.5: "mobilenetv2_050",
    0.75: "mobilenetv2_075",
    1: "mobilenetv2_100",
    1.4: "mobilenetv2_140",
}


@model("mobilenetv2_gn", weights=MOBILENETV2)
def mobilenetv2_gn(
    num_classes: int,
    channels: int,
    height: int,
    width: int,
    *,
    groups: int = 8,
    drop_path: float = 0.0,
    width_multiplier: float = 1,
) -> Net:
    """MobileNetV2 (Sandler et al. 2018) with GroupNorm of ``groups`` groups in place of BatchNorm (FedDiverse, 5.2).

    ``drop_path``: as of `efficientnet_b0`. ``width_multiplier``: one of the paper's (its section 6.1), for trials.
    Trained weights are those of the network with BatchNorm; its scales and offsets become GroupNorm's.
    """
    import timm

    if not isinstance(width_multiplier, int | float) or width_multiplier not in MOBILENETV2_WIDTHS:
        raise ConfigError(
            f"model.width_multiplier: came {width_multiplier!r}. Allowed: "
            f"{', '.join(map(str, MOBILENETV2_WIDTHS))}."
        )
    norm = partial(timm.layers.GroupNormAct, num_groups=groups, eps=1e-6)
    network = timm.create_model(
        MOBILENETV2_WIDTHS[width_multiplier],
        pretrained=False,
        num_classes=num_classes,
        in_chans=channels,
        norm_layer=norm,
        drop_path_rate=_share("drop_path", drop_path),
    )
    return _from_timm(network, num_classes)


def _share(key: str, value: float) -> float:
    if not _is_share(value):
        raise ConfigError(f"model.{key}: came {value!r}. Allowed: a number from 0 to below 1.")
    return float(value)


class WideBlock(nn.Module):
    """Two 3 x 3 convolutions, each behind BatchNorm and ReLU, dropout between them, and a shortcut."""

    def __init__(self, before: int, channels: int, stride: int, dropout: float) -> None:
        """From ``before`` channels to ``channels``, at 1/``stride`` of the resolution."""
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(before, channels, 1, stride=stride) if before != channels else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, H, W] -> [B, channels, H/stride, W/stride]."""
        active = F.relu(self.norm1(x))
        z = self.conv2(F.relu(self.norm2(self.dropout(self.conv1(active)))))
        # Where the width changes, the shortcut also starts behind the first BatchNorm and ReLU (He et al. 2016b).
        return z + (x if self.shortcut is None else self.shortcut(active))


@model("wrn28_10")
def wrn28_10(
    num_classes: int,
    channels: int,
    height: int,
    width: int,
    *,
    dropout: float = 0.0,
    widening_factor: int = 10,
) -> Net:
    """WideResNet-28-10 (Zagoruyko & Komodakis 2016) for 32 x 32 images, its convolutions with biases. BatchNorm.

    Without the biases it is 10,096 parameters short of FedMR's Table 3. ``dropout``: between the two convolutions of
    each of the 12 blocks. ``widening_factor``: k of WRN-28-k; below 10 for trials.
    """
    if not _is_count(widening_factor) or widening_factor == 0:
        raise ConfigError(f"model.widening_factor: came {widening_factor!r}. Allowed: a whole number from 1.")
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1)]
    before = 16
    for base, stride in ((16, 1), (32, 2), (64, 2)):
        after = base * widening_factor
        for number in range(4):
            block = WideBlock(before, after, stride if number == 0 else 1, _share("dropout", dropout))
            layers.append(block)
            before = after
    layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    body = nn.Sequential(*layers)
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return Net(body, nn.Linear(before, num_classes), before)


# One vector per model ------------------------------------------------------------------------------------------


def _groups(net: Net) -> dict[int, str]:
    """Group of each parameter, by identity: norm (BatchNorm) and other_norm by type of layer, head or body."""
    groups = {id(p): BODY for p in net.parameters()}
    groups |= {id(p): HEAD for p in net.classifier.parameters()}
    for module in net.modules():
        if isinstance(module, (_BatchNorm, *OTHER_NORM_LAYERS)):
            kind = NORM if isinstance(module, _BatchNorm) else OTHER_NORM
            groups |= {id(p): kind for p in module.parameters(recurse=False)}
    return groups


class FlatModel:
    """A network whose parameters are views into one vector ``w`` [d] and whose gradients are views into ``g`` [d].

    The classifier comes last in the vector, so other classifiers (``heads``, by key) can take its place behind the
    same body: after :meth:`use_head` ``w``, ``g`` and ``layout`` are those of body plus that head. Buffers (BatchNorm
    statistics and counters) are views into ``buffers``; a counter is kept as a float there.
    """

    def __init__(
        self,
        net: Net,
        heads: Mapping[str, nn.Module] | None = None,
        *,
        device: torch.device | None = None,
        channels_last: bool = False,
        gradients: bool = True,
    ) -> None:
        """Take over ``net`` and ``heads``: their tensors are replaced by views. Without ``gradients`` no g is kept."""
        self.net = net.to(device)
        self.channels_last = channels_last
        # The model's own classifier is bound last: all heads share one place, and w starts with its values.
        self._heads: dict[str | None, nn.Module] = {}
        self._heads.update(heads or {})
        self._heads[None] = net.classifier
        groups = _groups(net)
        body = [(f"body.{n}", tuple(p.shape), groups[id(p)]) for n, p in net.body.named_parameters()]
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
        self._g = torch.zeros_like(self._w) if gradients else None
        self._bind(dict(net.body.named_parameters(prefix="body")), self.layouts[None])
        for key, head in self._heads.items():
            self._bind(dict(head.to(first).named_parameters(prefix="classifier")), self.layouts[key])
        self._bind_buffers()
        self.use_head(None)
        self.features = net.features

    def compile(self) -> None:
        """Compile the body for training (torch.compile); classifiers change, and twins stay as they are."""
        self.features = torch.compile(self.net.features)

    def _bind(self, parameters: dict[str, nn.Parameter], layout: Layout) -> None:
        for entry in layout.entries:
            if entry.name not in parameters:
                continue
            parameter = parameters[entry.name]
            view = entry.view(self._w)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.requires_grad_(self._g is not None)
            if self._g is not None:
                parameter.grad = entry.view(self._g)

    def _bind_buffers(self) -> None:
        named = list(self.net.named_buffers())
        self.buffer_layout = Layout.of((name, tuple(b.shape), NORM) for name, b in named)
        self.buffers = torch.zeros(self.buffer_layout.size, dtype=self._w.dtype, device=self._w.device)
        self.counters = torch.zeros(self.buffer_layout.size, dtype=torch.bool, device=self._w.device)
        for name, buffer in named:
            view = self.buffer_layout.view(self.buffers, name)
            view.copy_(buffer)
            owner, _, leaf = name.rpartition(".")
            # .data: same storage, own version counter. Autograd would otherwise take the update of one
            # statistic in place for an update of all.
            self.net.get_submodule(owner)._buffers[leaf] = view.data
        for entry in self.buffer_layout.entries:
            self.counters[entry.start : entry.stop] = entry.name.endswith("num_batches_tracked")

    def use_head(self, key: str | None) -> None:
        """Put the classifier ``key`` (None: the model's own) behind the body."""
        self.head_key = key
        self.net.classifier = self._heads[key]
        self.layout = self.layouts[key]
        self.w = self._w[: self.layout.size]
        self.g = self._g[: self.layout.size] if self._g is not None else None

    def twin(self) -> FlatModel:
        """A second model of the same structure with a vector of its own, without gradients."""
        in_place = self.head_key
        self.use_head(None)
        net, heads = copy.deepcopy((self.net, {k: h for k, h in self._heads.items() if k is not None}))
        self.use_head(in_place)
        for module in (net, *heads.values()):
            for parameter in module.parameters():
                parameter.grad = None
        return FlatModel(net, heads, channels_last=self.channels_last, gradients=False)

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the present values; nothing else changes."""
        named = {name: p.detach() for name, p in self.net.named_parameters()}
        buffers = dict(self.net.named_buffers())

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            logits = functional_call(self.net, (parameters, buffers), (x[None],))
            return F.cross_entropy(logits, y[None])

        found = vmap(grad(loss), in_dims=(None, 0, 0))(named, x, y)
        every = torch.empty(len(x), len(self.w), dtype=self.w.dtype, device=self.w.device)
        for entry in self.layout.entries:
            gradient = found[entry.name]
            if entry.channels_last:
                gradient = gradient.permute(0, 1, 3, 4, 2)
            every[:, entry.start : entry.stop] = gradient.flatten(1)
        return every

    def shares_memory(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is a view of the vectors of this model, which the next client overwrites."""
        own = {t.untyped_storage().data_ptr() for t in (self._w, self._g, self.buffers) if t is not None}
        return tensor.numel() > 0 and tensor.untyped_storage().data_ptr() in own

    @property
    def has_batch_norm(self) -> bool:
        """Whether training mode needs more than one sample per batch."""
        return any(isinstance(m, _BatchNorm) for m in self.net.modules())

    def freeze_batch_norm(self) -> None:
        """BatchNorm layers use their running statistics and do not update them; their affine part still trains."""
        for layer in self.net.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()


def flatten_head(head: nn.Module, channels_last: bool = False) -> Tensor:
    """The parameters of a classifier as one vector, in the order of the layout."""
    layout = Layout.of(((n, tuple(p.shape), HEAD) for n, p in head.named_parameters()), channels_last)
    vector = torch.empty(layout.size, dtype=next(head.parameters()).dtype)
    for entry, parameter in zip(layout.entries, head.parameters(), strict=True):
        entry.view(vector).copy_(parameter.data)
    return vector
