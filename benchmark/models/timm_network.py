"""Any network of timm (https://github.com/huggingface/pytorch-image-models) whose head can be split."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from benchmark.errors import ConfigError, wrong
from benchmark.models.base import Net, PretrainedNetwork, Shape, network
from benchmark.models.networks import from_timm, split, timm_library
from benchmark.models.pretrained import WeightsFile

HUB = "https://huggingface.co/{}/resolve/main/model.safetensors"


@network("timm")
class TimmNetwork(PretrainedNetwork):
    """A network of timm at the image size of the data. Its features are what its last linear layer gets.

    Attributes:
        architecture: timm's name of it, with or without the tag of its weights.
        options: Further arguments of timm's constructor, as ``patch_size`` or ``drop_path_rate``.
    """

    architecture: str
    options: dict[str, Any] = Field({})

    def published(self) -> WeightsFile:
        """The file of the network's tag on timm's hub."""
        about = self._about()
        if not about.hf_hub_id:
            expected = f"false: {self.architecture!r} has no weights on timm's hub"
            raise ConfigError(wrong("model.pretrained", True, expected))
        name = ".".join(filter(None, [about.architecture, about.tag]))
        return WeightsFile(HUB.format(about.hf_hub_id), 0, "", f"{name}.safetensors")

    def net(self, num_classes: int, shape: Shape) -> Net:
        channels, height, width = shape
        self._about()
        try:
            whole = from_timm(self.architecture, num_classes, shape, **self._arguments(shape))
            last = whole.get_classifier()
            net = split(whole, num_classes)
            with torch.no_grad():
                features = net.body.eval()(torch.zeros(2, *shape)).shape
            net.body.train()
        except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, IndexError) as error:
            images = f"images of {height} x {width} pixels with {channels} channel(s)"
            expected = (
                f"a network of timm that takes {images}, and model.options that it knows ({_line(error)})"
            )
            raise ConfigError(wrong("model.architecture", self.architecture, expected)) from error
        if not isinstance(last, nn.Linear) or features != (2, last.in_features):
            expected = (
                "a network of timm that ends with one linear layer: others cannot be split into body and head"
            )
            raise ConfigError(wrong("model.architecture", self.architecture, expected))
        return Net(net.body, nn.Linear(last.in_features, num_classes), last.in_features)

    def load(
        self, net: Net, shape: Shape, given: Mapping[str, Tensor], source: WeightsFile
    ) -> list[nn.GroupNorm]:
        """Copy the tensors of the file, which timm fits to the image size, into the body.

        Raises:
            ConfigError: The names or shapes are not those of the network.
        """
        missing = [name for name, _ in net.body.named_parameters() if name not in given]
        what = f"{len(missing)} tensors are missing, {missing[0]} the first" if missing else ""
        try:
            if not missing:
                arguments = self._arguments(shape) | {"pretrained": True}
                filled = from_timm(
                    self.architecture,
                    0,
                    shape,
                    **arguments,
                    pretrained_cfg_overlay={"state_dict": dict(given)},
                )
                net.body.load_state_dict(filled.state_dict())
        except RuntimeError as error:
            what = _line(error)
        if what:
            raise ConfigError(
                f"{source.file}: these are the weights of another network: {what}. {source.source}."
            )
        return []

    def _about(self) -> Any:
        """What timm knows of the weights. `ConfigError` if it has no such network."""
        timm = timm_library()
        about = None
        if timm.is_model(self.architecture):
            with contextlib.suppress(RuntimeError):  # it does not know the tag
                about = timm.get_pretrained_cfg(self.architecture)
        if about is None:
            expected = "a name that timm.list_models() or timm.list_pretrained() lists"
            known = [*timm.list_models(), *timm.list_pretrained()]
            raise ConfigError(wrong("model.architecture", self.architecture, expected, known=known))
        return about

    def _arguments(self, shape: Shape) -> dict[str, Any]:
        """``options``, and the image size for networks that are built for one."""
        return ({"img_size": shape[1:]} if self._about().fixed_input_size else {}) | self.options


def _line(error: Exception) -> str:
    """The first line of an error of timm or torch."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
