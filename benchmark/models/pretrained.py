"""Weights that a body starts from: ImageNet's, or those of another run; found or downloaded, checked, read, copied."""

import hashlib
import math
import os
import pickle
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmark.config.schema import PathsConfig
from benchmark.errors import ConfigError, wrong
from benchmark.paths import ROOT

STALL_SECONDS = 20.0
"""A download that receives nothing for this long is given up."""

WRAPPER = "server_model_state_dict"
"""The key of the tensors in a checkpoint of FedDiverse's authors, if they are not at the top."""

CONSTANT = 1e-5
"""A channel whose spread behind GroupNorm is at most this is taken for constant: the rest may be rounding errors."""


@dataclass(frozen=True)
class WeightsFile:
    """A file of pre-trained weights as its owner publishes it, or as ``export`` writes it.

    Attributes:
        url: Where the file is published, or for a file of ``export`` where it lies. Without a ``name`` it is called
            ``<name>-<first digits of its SHA-256>.pth``.
        megabytes: Approximate size of the file; 0 for a file of ``export``.
        head: Prefix of the names of the classifier's tensors, which are not loaded.
        name: What the file is called here, without digits; empty: as in the url.
    """

    url: str
    megabytes: int
    head: str
    name: str = ""

    @property
    def file(self) -> str:
        return self.name or self.url.rpartition("/")[2]

    @property
    def digits(self) -> str:
        """The first digits of its SHA-256; empty if they are not known."""
        return "" if self.name else self.file.rpartition("-")[2].removesuffix(".pth")

    @property
    def is_exported(self) -> bool:
        """Whether ``export`` wrote the file, and nobody publishes it."""
        return "://" not in self.url

    @property
    def source(self) -> str:
        """How to get the file."""
        if self.is_exported:
            return f"Write it with `python -m benchmark export RUN name={self.file.rpartition('-')[0]}`"
        return f"Get it from {self.url}" + (f" ({self.megabytes} MB)" if self.megabytes else "")


Reader = Callable[[WeightsFile], Mapping[str, Tensor]]
"""Reads a file of weights: its tensors by name."""

_TIMM = "https://github.com/rwightman/pytorch-image-models/releases/download/v0.1"

RESNET50 = WeightsFile("https://download.pytorch.org/models/resnet50-0676ba61.pth", 103, "fc.")
RESNET50_GN = WeightsFile(f"{_TIMM}-rsb-weights/resnet50_gn_a1h2-8fe6c4d0.pth", 102, "fc.")
EFFICIENTNET_B0 = WeightsFile(f"{_TIMM}-weights/efficientnet_b0_ra-3dd342df.pth", 21, "classifier.")
MOBILENETV2 = WeightsFile(f"{_TIMM}-weights/mobilenetv2_100_ra-b33bc2c4.pth", 14, "classifier.")


def weights_folder(paths: PathsConfig) -> Path:
    """``paths.weights``, or else FEDTABLES_WEIGHTS, or else the folder of torch.hub's downloads."""
    named = paths.weights or os.environ.get("FEDTABLES_WEIGHTS")
    return (Path(named) if named else Path(torch.hub.get_dir()) / "checkpoints").expanduser().absolute()


def weights_path(source: WeightsFile, paths: PathsConfig) -> Path:
    """Where the file of ``source`` lies: one of ``export`` may be named with its folder, relative to the checkout."""
    if source.is_exported and source.url != source.file:
        return ROOT / source.url
    return weights_folder(paths) / source.file


def exported(start: str) -> WeightsFile:
    """The file of weights that ``model.start`` names. `ConfigError` if its name lacks the digits of its SHA-256."""
    if not re.fullmatch(r".+-[0-9a-f]{8,64}\.pth", Path(start).name):
        path = ROOT / start
        called = f"{path.stem}-{_sha256(path)[:8]}.pth" if path.is_file() else "<name>-<digits>.pth"
        expected = f"a file named after the first digits of its SHA-256, {called}, or null"
        raise ConfigError(wrong("model.start", start, expected))
    return WeightsFile(start, 0, "classifier.")


def fetch_weights(source: WeightsFile, paths: PathsConfig) -> Path:
    """Find or download the file of ``source``.

    Raises:
        ConfigError: The file is not there and cannot be downloaded, or it is damaged or another file.
    """
    path = weights_path(source, paths)
    if not path.is_file():
        if source.is_exported:
            raise ConfigError(
                f"model.start: {path} is not there. {source.source}, or set FEDTABLES_WEIGHTS to its folder."
            )
        _download(source, path)
    digest = _sha256(path)
    if not digest.startswith(source.digits):
        raise _bad(source, path, f"its SHA-256 begins with {digest[: len(source.digits)]}")
    return path


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Change its permissions.") from error


def read_weights(source: WeightsFile, paths: PathsConfig) -> Mapping[str, Tensor]:
    """The tensors of ``source`` by name, on the CPU.

    Raises:
        ConfigError: As in `fetch_weights`, or the file contains something else than named tensors.
    """
    path = fetch_weights(source, paths)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        SafetensorError,
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        OSError,
    ) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise _bad(source, path, f"torch cannot read it ({reason})") from error
    if isinstance(content, Mapping):
        content = content.get(WRAPPER, content)
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise _bad(source, path, f"it contains a {type(content).__name__} and not tensors by name")
    return content


def _download(source: WeightsFile, path: Path) -> None:
    # torch's function has no timeout, and urllib's default is to wait forever.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        digits = source.digits or None
        torch.hub.download_url_to_file(source.url, str(path), digits, progress=sys.stderr.isatty())
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"model.pretrained: {path} is not there and cannot be downloaded ({error}). {source.source}. "
            "Another folder: paths.weights=FOLDER or FEDTABLES_WEIGHTS. Random weights: "
            "model.pretrained=false."
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def _bad(source: WeightsFile, path: Path, problem: str) -> ConfigError:
    expected = f"; expected SHA-256 {source.digits}.." if source.digits else ""
    return ConfigError(
        f"{path} is not the file that its name says: {problem}{expected}. A download may "
        f"have been interrupted. Delete it. {source.source}."
    )


def load_weights(body: nn.Module, given: Mapping[str, Tensor], source: WeightsFile) -> list[nn.GroupNorm]:
    """Copy the tensors of ``source``, except its classifier's, into ``body``.

    If ``body`` has another normalisation in place of BatchNorm, the scales and offsets are copied and the statistics
    are not. Returns the GroupNorms that got those of a BatchNorm; `calibrate` fits them to it.

    Raises:
        ConfigError: The names or shapes are not those of ``body``.
    """
    has_statistics = any(isinstance(module, _BatchNorm) for module in body.modules())
    left_out = () if has_statistics else ("running_mean", "running_var", "num_batches_tracked")
    wanted = {name: t.shape for name, t in body.state_dict().items() if not name.startswith(source.head)}
    tensors = {
        name: tensor
        for name, tensor in given.items()
        if not name.startswith(source.head) and not name.endswith(left_out)
    }
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    # Old files lack BatchNorm's counter of batches, which changes no output.
    other = [
        name
        for name in sorted(wanted.keys() | shapes.keys())
        if wanted.get(name) != shapes.get(name) and not name.endswith("num_batches_tracked")
    ]
    if other:
        raise ConfigError(
            f"{source.file}: these are the weights of another network: {len(other)} tensors are missing, unknown or of "
            f"another shape, {other[0]} the first. {source.source}."
        )
    body.load_state_dict(tensors, strict=False)
    return [
        module
        for name, module in body.named_modules()
        if isinstance(module, nn.GroupNorm) and f"{name}.running_var" in given
    ]


@torch.no_grad()
def calibrate(body: nn.Module, norms: Sequence[nn.GroupNorm], images: Tensor) -> None:
    """Give the outputs of GroupNorms the mean and the spread that BatchNorm's outputs have.

    Each of ``norms`` holds the scale gamma and the offset beta of the BatchNorm that it replaces. Without them its
    output has a mean m and a spread s per channel, over all images and places. Its scale becomes gamma / s and its
    offset beta - gamma m / s. A constant channel gets scale 0 and offset beta. The layers are set one after another in
    one forward pass of ``images`` [B, c, H, W]. ``body`` is in its evaluation mode for this pass.
    """

    def fit(norm: nn.GroupNorm, inputs: tuple[Tensor]) -> None:
        z = F.group_norm(inputs[0], norm.num_groups, eps=norm.eps)
        places = [0, *range(2, z.ndim)]
        mean = z.mean(places, keepdim=True, dtype=torch.float64)
        length = torch.linalg.vector_norm(z.sub_(mean), dim=places, dtype=torch.float64)
        spread = length / math.sqrt(z.numel() / z.shape[1])
        scale = torch.where(spread > CONSTANT, norm.weight / spread, 0.0)
        norm.bias.sub_(scale * mean.flatten())
        norm.weight.copy_(scale)

    hooks = [norm.register_forward_pre_hook(fit) for norm in norms]
    training = body.training
    body.eval()(images)
    body.train(training)
    for hook in hooks:
        hook.remove()
