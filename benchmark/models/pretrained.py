"""Weights trained on ImageNet: which files there are, and how their tensors go into a body. Reads no file itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmark.errors import ConfigError

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Weights:
    """A file of trained weights as its owner publishes it.

    Attributes:
        url: where the file is published; it is called ``<name>-<first digits of its SHA-256>.pth``.
        page: where a person reads about it.
        megabytes: size of the file, roughly.
        head: beginning of the names of the classifier's tensors, which are left out.
    """

    url: str
    page: str
    megabytes: int
    head: str

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def digits(self) -> str:
        """The first digits of its SHA-256."""
        return self.file.rpartition("-")[2].removesuffix(".pth")


Reader = Callable[[Weights], Mapping[str, Tensor]]
"""Finds, checks and reads a file of weights: its tensors by name."""

_TIMM = "https://github.com/rwightman/pytorch-image-models/releases"

RESNET50 = Weights(
    "https://download.pytorch.org/models/resnet50-0676ba61.pth",
    "https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html (IMAGENET1K_V1)",
    103,
    "fc.",
)
EFFICIENTNET_B0 = Weights(
    f"{_TIMM}/download/v0.1-weights/efficientnet_b0_ra-3dd342df.pth",
    f"{_TIMM}/tag/v0.1-weights",
    21,
    "classifier.",
)
MOBILENETV2 = Weights(
    f"{_TIMM}/download/v0.1-weights/mobilenetv2_100_ra-b33bc2c4.pth",
    f"{_TIMM}/tag/v0.1-weights",
    14,
    "classifier.",
)


def load_weights(body: nn.Module, given: Mapping[str, Tensor], source: Weights) -> None:
    """Put the tensors of ``source`` into ``body``, all but its classifier.

    Of a BatchNorm that ``body`` replaced by another normalisation the scale and the offset are kept, the statistics
    dropped: weights are loaded first and the layers exchanged afterwards, as it were.

    Raises:
        ConfigError: The names or shapes are not those of ``body``.
    """
    wanted = {name: t for name, t in body.state_dict().items() if not name.startswith(source.head)}
    has_statistics = any(isinstance(module, _BatchNorm) for module in body.modules())
    tensors = {
        name: tensor
        for name, tensor in given.items()
        if not name.startswith(source.head) and (has_statistics or not name.endswith(STATISTICS))
    }
    # Files older than BatchNorm's counter lack it; it counts batches and changes no output.
    missing = [name for name in wanted if name not in tensors and not name.endswith(STATISTICS[2])]
    unknown = [name for name in tensors if name not in wanted]
    other = [
        f"{name} {tuple(tensor.shape)} instead of {tuple(wanted[name].shape)}"
        for name, tensor in tensors.items()
        if name in wanted and tensor.shape != wanted[name].shape
    ]
    if missing or unknown or other:
        raise ConfigError(
            f"{source.file}: these are weights of another network. Missing: {_first(missing)}. Unknown: "
            f"{_first(unknown)}. Other shapes: {_first(other)}. Get the file from {source.url}."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def _first(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (", ".join(names[:3]) or "none") + more
