"""A network in two parts, the parameters that all networks share, and the registry of networks."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from benchmark.errors import ConfigError
from benchmark.models.pretrained import WeightsFile, load_weights
from benchmark.registry import Registry

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=0)]
Multiplier = Annotated[float, Field(ge=0.125, le=8)]
"""An eighth leaves 8 channels: with fewer, oneDNN may write past its memory with AVX2 (uxlfoundation/oneDNN#6035)."""

Shape = tuple[int, int, int]
"""Channels, height and width of images."""


class Net(nn.Module):
    """A network in two parts: a body that makes features [B, h] and a classifier [B, h] -> [B, C]."""

    def __init__(self, body: nn.Module, classifier: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.body = body
        self.classifier = classifier
        self.feature_dim = feature_dim

    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of inputs [B, c, H, W]."""
        return self.body(x)

    def classify(self, z: Tensor) -> Tensor:
        return self.classifier(z)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


class UnitLength(nn.Module):
    """Divides each row by its length."""

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(z)


# What all networks share ---------------------------------------------------------------------------------------


class Network(BaseModel):
    """A network's parameters and how it is built. Every network has the parameters of this class.

    Attributes:
        projection: Width of a projection head (Linear, ReLU, Linear) behind the body, whose outputs are then the
            features (MOON's and FedProc's code: 256); 0 for none.
        normalize_features: Divide the features of every sample by their length (FedProc's code).
        feature_dropout: Share of the features that is dropped in training.
        start: File of weights that the body starts from, made by ``export``.
        calibration: Training images on which GroupNorm gets the mean and the spread of the BatchNorm whose weights it
            starts from; 0: BatchNorm's scales and offsets as they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    weights: ClassVar[WeightsFile | None] = None

    projection: Count = 0
    normalize_features: bool = False
    feature_dropout: Share = 0.0
    start: str | None = None
    calibration: Count = 128

    @abstractmethod
    def net(self, num_classes: int, shape: Shape) -> Net:
        """The network without the layers that all networks may have."""

    def with_feature_layers(self, net: Net, num_classes: int) -> Net:
        """``net`` with the layers that all networks may have between body and classifier."""
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


class PretrainedNetwork(Network):
    """A network whose body can start from `weights`. The classifier is always drawn at random."""

    pretrained: bool = False

    def published(self) -> WeightsFile | None:
        """The file of weights that its body starts from with ``pretrained``."""
        return self.weights

    def load(
        self, net: Net, shape: Shape, given: Mapping[str, Tensor], source: WeightsFile
    ) -> list[nn.GroupNorm]:
        """Copy the tensors of the file into the body. Result and errors as `load_weights`."""
        return load_weights(net.body, given, source)


networks: Registry[type[Network]] = Registry("network", "benchmark.models", ConfigError)


def network(name: str) -> Callable[[type[Network]], type[Network]]:
    """Register a class of networks."""

    def decorate(cls: type[Network]) -> type[Network]:
        networks.add(name, cls, cls.__module__)
        return cls

    return decorate
