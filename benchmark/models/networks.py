"""The networks, and how one is built from its name and parameters."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from benchmark.config.schema import NamedConfig
from benchmark.errors import ConfigError, validate, wrong
from benchmark.models.base import (
    Count,
    Multiplier,
    Net,
    Network,
    PretrainedNetwork,
    Shape,
    Share,
    network,
    networks,
)
from benchmark.models.pretrained import (
    EFFICIENTNET_B0,
    MOBILENETV2,
    RESNET50,
    RESNET50_GN,
    Reader,
    WeightsFile,
    calibrate,
    exported,
    load_weights,
)


def model_names() -> list[str]:
    """Sorted names of the registered networks."""
    return networks.names()


def wanted_weights(model: NamedConfig) -> WeightsFile | None:
    """The pre-trained weights that a run's model starts from; None if it starts from random ones."""
    if model.parameters.get("start") is not None:
        return exported(model.parameters["start"])
    network = network_of(model.name, model.parameters)
    return network.published() if isinstance(network, PretrainedNetwork) and network.pretrained else None


def network_of(name: str, parameters: Mapping[str, Any]) -> Network:
    """The settings of a network; `UserError` for an unknown name or parameter, or a file that cannot be imported."""
    return validate(networks.get("model.name", name), parameters, "model.")


def build_net(
    name: str,
    num_classes: int,
    shape: Shape,
    parameters: Mapping[str, Any],
    seed: int,
    read: Reader | None = None,
    images: Callable[[int], Tensor] | None = None,
) -> Net:
    """Build a network from the fields of its class, with initial weights drawn from ``seed``.

    ``read`` reads the file of pre-trained weights; it is needed only with ``pretrained`` or ``start``. ``images`` gives
    that many training images [B, c, H, W]; it is needed only if GroupNorm then starts from BatchNorm.

    Raises:
        ConfigError: An unknown name or parameter, or weights that cannot be used.
    """
    network = network_of(name, parameters)
    # Initialisation draws from torch's own generator. It is put back, so that building a model changes no other draw.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network.net(num_classes, shape)
        pretrained = network if isinstance(network, PretrainedNetwork) and network.pretrained else None
        if pretrained and network.start is not None:
            raise ConfigError(wrong("model.start", network.start, "null with model.pretrained=true"))
        width = getattr(network, "width_multiplier", 1)
        if pretrained and (shape[0], width) != (3, 1):
            here = f"{shape[0]} channel(s) and width_multiplier={width}"
            expected = f"false, or 3 channels and width_multiplier=1 (here {here})"
            raise ConfigError(wrong("model.pretrained", True, expected))
        source = pretrained.published() if pretrained else exported(network.start) if network.start else None
        if source is not None:
            assert read is not None
            given = read(source)
            norms = (
                pretrained.load(net, shape, given, source)
                if pretrained
                else load_weights(net.body, given, source)
            )
            if norms and network.calibration:
                assert images is not None
                calibrate(net.body, norms, images(network.calibration))
        return network.with_feature_layers(net, num_classes)


def count_flops(name: str, parameters: Mapping[str, Any], num_classes: int, shape: Shape) -> float:
    """FLOPs of the forward pass of one image, without computing anything; 0 if they cannot be counted."""
    from torch.utils.flop_counter import FlopCounterMode  # a quarter of a second

    counter = FlopCounterMode(display=False)
    with (
        suppress(ConfigError, NotImplementedError, RuntimeError),
        torch.device("meta"),
        counter,
        torch.no_grad(),
    ):
        build_net(name, num_classes, shape, parameters, 0).eval()(torch.empty(1, *shape))
    return float(counter.get_total_flops())


# Small networks ------------------------------------------------------------------------------------------------


@network("tiny_mlp")
class TinyMlp(Network):
    """One hidden layer: for 8 x 8 digits, the fewest operations in a step."""

    hidden: int = Field(64, ge=1)

    def net(self, num_classes: int, shape: Shape) -> Net:
        channels, height, width = shape
        body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, self.hidden),
            nn.ReLU(inplace=True),
        )
        return Net(body, nn.Linear(self.hidden, num_classes), self.hidden)


@network("tiny_cnn")
class TinyCnn(Network):
    """Two convolutions (8, 16 filters) and one hidden layer: for 8 x 8 digits, a few thousand parameters.

    Attributes:
        hidden: Units of the hidden layer.
        stride: That of the first convolution.
    """

    filters: ClassVar[tuple[int, int]] = (8, 16)
    hidden: int = Field(32, ge=1)
    stride: int = Field(1, ge=1)

    def net(self, num_classes: int, shape: Shape) -> Net:
        (first, second), (channels, *sides) = self.filters, shape
        height, width = (((side - 1) // self.stride + 1) // 4 for side in sides)
        body = nn.Sequential(
            nn.Conv2d(channels, first, 3, stride=self.stride, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * height * width, self.hidden),
            nn.ReLU(inplace=True),
        )
        return Net(body, nn.Linear(self.hidden, num_classes), self.hidden)


@network("small_cnn")
class SmallCnn(TinyCnn):
    """Two convolutions (16, 32 filters) and one hidden layer: for 28 x 28 and 32 x 32 images."""

    filters: ClassVar[tuple[int, int]] = (16, 32)
    hidden: int = Field(128, ge=1)


# Networks of timm ----------------------------------------------------------------------------------------------


def timm_library() -> Any:
    """The module timm."""
    import timm  # It takes seconds to import, and the small networks do not need it.

    return timm


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise convolution that first pads an image smaller than its kernel: the same function.

    oneDNN has no fast backward pass for such an image with padding inside the convolution: it takes ten times as long.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, c, H, W] -> [B, c, H/stride, W/stride]."""
        if min(x.shape[-2:]) >= max(self.kernel_size):
            return super().forward(x)
        assert not isinstance(self.padding, str)
        height, width = self.padding
        x = F.pad(x, (width, width, height, height))
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def from_timm(name: str, num_classes: int, shape: Shape, **parameters: Any) -> Any:
    """A network of timm for images of ``shape``; without other ``parameters`` with random weights."""
    parameters = {"pretrained": False} | parameters
    network = timm_library().create_model(name, num_classes=num_classes, in_chans=shape[0], **parameters)
    for module in network.modules():
        is_plain = type(module) is nn.Conv2d and not isinstance(
            module.padding, str
        )  # timm has kinds of its own
        if is_plain and module.groups == module.in_channels > 1:
            module.__class__ = DepthwiseConv2d
    return network


def split(network: Any, num_classes: int) -> Net:
    """The network of timm without its classifier as body, and a new classifier."""
    feature_dim = int(network.num_features)
    network.reset_classifier(0)
    return Net(network, nn.Linear(feature_dim, num_classes), feature_dim)


def _resnet_widths(multiplier: float, multiple: int = 1) -> tuple[int, ...]:
    """Channels of a ResNet's four stages, each a ``multiple``."""
    return tuple(max(1, round(usual * multiplier / multiple)) * multiple for usual in (64, 128, 256, 512))


def _resnet18(num_classes: int, shape: Shape, **parameters: Any) -> Net:
    network = from_timm("resnet18", num_classes, shape, **parameters)
    network.conv1 = nn.Conv2d(shape[0], 64, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return split(network, num_classes)


@network("resnet18_32")
class ResNet18(Network):
    """ResNet-18 (He et al. 2016) with the 32-pixel stem: one 3 x 3 convolution, no pooling. BatchNorm.

    ``width_multiplier`` is a factor on the channels of every layer behind the stem.
    """

    width_multiplier: Multiplier = 1

    def net(self, num_classes: int, shape: Shape) -> Net:
        return _resnet18(num_classes, shape, channels=_resnet_widths(self.width_multiplier))


@network("resnet18_gn")
class ResNet18GroupNorm(ResNet18):
    """`ResNet18` with GroupNorm of ``groups`` groups in place of BatchNorm (FedDisco's and FedSDC's code)."""

    groups: int = Field(2, ge=1)

    def net(self, num_classes: int, shape: Shape) -> Net:
        norm = partial(timm_library().layers.GroupNorm, num_groups=self.groups)
        widths = _resnet_widths(self.width_multiplier, self.groups)
        return _resnet18(num_classes, shape, channels=widths, norm_layer=norm)


@network("resnet50")
class ResNet50(PretrainedNetwork):
    """ResNet-50 (He et al. 2016; as torchvision's, with the stride in the 3 x 3 convolution). BatchNorm.

    ``width_multiplier`` as in `ResNet18`.
    """

    weights: ClassVar[WeightsFile | None] = RESNET50
    timm_name: ClassVar[str] = "resnet50"
    multiple: ClassVar[int] = 1
    width_multiplier: Multiplier = 1

    def net(self, num_classes: int, shape: Shape) -> Net:
        widths = _resnet_widths(self.width_multiplier, self.multiple)
        return split(from_timm(self.timm_name, num_classes, shape, channels=widths), num_classes)


@network("resnet50_gn")
class ResNet50GroupNorm(ResNet50):
    """`ResNet50` with GroupNorm of 32 groups in place of BatchNorm (FedDiverse's code, for its Table 7)."""

    weights: ClassVar[WeightsFile | None] = RESNET50_GN
    timm_name: ClassVar[str] = "resnet50_gn"
    multiple: ClassVar[int] = 32


@network("efficientnet_b0")
class EfficientNetB0(PretrainedNetwork):
    """EfficientNet-b0 (Tan & Le 2019). BatchNorm.

    Attributes:
        drop_path: Share of samples that skip the last block in training; it grows from 0 at the first block.
        hidden: Width of a layer (Linear, ReLU) between the pooled 1280 features and the classifier; 0 for none.
    """

    weights: ClassVar[WeightsFile | None] = EFFICIENTNET_B0
    drop_path: Share = 0.0
    hidden: Count = 0

    def net(self, num_classes: int, shape: Shape) -> Net:
        network = from_timm("efficientnet_b0", num_classes, shape, drop_path_rate=self.drop_path)
        net = split(network, num_classes)
        if not self.hidden:
            return net
        network.classifier = nn.Sequential(nn.Linear(net.feature_dim, self.hidden), nn.ReLU(inplace=True))
        return Net(network, nn.Linear(self.hidden, num_classes), self.hidden)


MOBILENETV2_WIDTHS = (0.35, 0.5, 0.75, 1, 1.4)


@network("mobilenetv2_gn")
class MobileNetV2(PretrainedNetwork):
    """MobileNetV2 (Sandler et al. 2018) with GroupNorm in place of BatchNorm (FedDiverse, section 5.2).

    Pre-trained weights are those of the network with BatchNorm; ``calibration`` fits GroupNorm to it.

    Attributes:
        groups: Groups of each GroupNorm.
        drop_path: As in `EfficientNetB0`.
        width_multiplier: One of the paper's (its section 6.1).
    """

    weights: ClassVar[WeightsFile | None] = MOBILENETV2
    groups: int = Field(8, ge=1)
    drop_path: Share = 0.0
    width_multiplier: float = 1

    @field_validator("width_multiplier")
    @classmethod
    def _known_width(cls, value: float) -> float:
        if value not in MOBILENETV2_WIDTHS:
            expected = f"one of {', '.join(map(str, MOBILENETV2_WIDTHS))}"
            raise ValueError(wrong("model.width_multiplier", value, expected))
        return value

    def net(self, num_classes: int, shape: Shape) -> Net:
        norm = partial(timm_library().layers.GroupNormAct, num_groups=self.groups, eps=1e-6)
        name = f"mobilenetv2_{round(100 * self.width_multiplier):03}"
        network = from_timm(name, num_classes, shape, norm_layer=norm, drop_path_rate=self.drop_path)
        return split(network, num_classes)


# WideResNet ----------------------------------------------------------------------------------------------------


class WideBlock(nn.Module):
    """Two 3 x 3 convolutions, each behind BatchNorm and ReLU, dropout between them, and a shortcut."""

    def __init__(self, before: int, channels: int, stride: int, dropout: float) -> None:
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


@network("wrn28_10")
class WideResNet(Network):
    """WideResNet-28-10 (Zagoruyko & Komodakis 2016) for 32 x 32 images, its convolutions with biases. BatchNorm.

    Without the biases it has 10,096 parameters fewer than FedMR's Table 3 says.

    Attributes:
        dropout: Share dropped between the two convolutions of each of the 12 blocks.
        widening_factor: k of WRN-28-k.
    """

    dropout: Share = 0.0
    widening_factor: int = Field(10, ge=1)

    def net(self, num_classes: int, shape: Shape) -> Net:
        layers: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, padding=1)]
        before = 16
        for base, stride in ((16, 1), (32, 2), (64, 2)):
            after = base * self.widening_factor
            for number in range(4):
                layers.append(WideBlock(before, after, stride if number == 0 else 1, self.dropout))
                before = after
        layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        body = nn.Sequential(*layers)
        for module in body.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        return Net(body, nn.Linear(before, num_classes), before)
