"""ImageNet weights of MobileNetV2 from a public 8-bit file, as a file that ``model.start`` names.

    python results/studies/cmnist_paper/tflite_weights.py mobilenet_v2_1.0_224_quant.tflite DATA FOLDER

It needs `pip install tflite`. DATA is the folder of raw data sets; it is searched for CIFAR-10. The file of weights is
written to FOLDER.

The 8-bit file is ``test_data/mobilenet_v2_1.0_224_quant.tflite`` of github.com/google-coral/edgetpu (commit 5020de9,
Apache-2.0). Its BatchNorm is folded into the convolutions. Here every BatchNorm is put back, with mean and variance of
150 images of CIFAR-10 at 224 x 224 pixels: the training images with the smallest SHA-256. The function of the network
stays the same. All is computed in float64, and mean and scale are rounded to four digits, so that the file does not
depend on the machine.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmark.commands.export import write_weights
from datasets.core import registry
from datasets.core.base import RawOptions

SOURCE = "51e8256b05665529"
"""First digits of the SHA-256 of the 8-bit file."""

IMAGES, PART, PIXELS = 150, 10, 224


def read(path: Path) -> list[tuple[Tensor, Tensor]]:
    """Weights [O, I, kh, kw] and biases [O] of all convolutions in their order; the last is the classifier."""
    import tflite

    content = path.read_bytes()
    if not hashlib.sha256(content).hexdigest().startswith(SOURCE):
        raise SystemExit(f"{path} is another file: its SHA-256 does not begin with {SOURCE}.")
    model = tflite.Model.GetRootAsModel(content, 0)
    graph = model.Subgraphs(0)

    def tensor(number: int, kind: type[np.generic]) -> Tensor:
        entry = graph.Tensors(number)
        raw = model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
        whole, scale = np.frombuffer(raw, kind).astype(np.float64), entry.Quantization()
        values = (whole - scale.ZeroPoint(0)) * scale.Scale(0)
        return torch.from_numpy(values.reshape(entry.ShapeAsNumpy()))

    found = []
    for operator in map(graph.Operators, range(graph.OperatorsLength())):
        code = model.OperatorCodes(operator.OpcodeIndex()).DeprecatedBuiltinCode()
        if code in (tflite.BuiltinOperator.CONV_2D, tflite.BuiltinOperator.DEPTHWISE_CONV_2D):
            _, weight, bias = operator.InputsAsNumpy()
            order = (0, 3, 1, 2) if code == tflite.BuiltinOperator.CONV_2D else (3, 0, 1, 2)
            found.append((tensor(weight, np.uint8).permute(order), tensor(bias, np.int32)))
    return found


def images(data: Path) -> Tensor:
    """The images [150, 3, 224, 224] as the network takes them: x / 127.5 - 1."""
    entry = registry.get("cifar10")
    raw: Any = entry.build(RawOptions(strict=False), data)
    chosen = sorted(raw.train.images, key=lambda image: hashlib.sha256(image.tobytes()).digest())[:IMAGES]
    pixels = torch.from_numpy(np.stack(chosen)).double() / 127.5 - 1
    return F.interpolate(pixels, PIXELS, mode="bilinear")


def rounded(values: Tensor) -> Tensor:
    """Each value with four digits."""
    return torch.tensor([float(f"{value:.4g}") for value in values.tolist()], dtype=values.dtype)


@torch.no_grad()
def with_batch_norm(folded: Sequence[tuple[Tensor, Tensor]], inputs: Tensor) -> nn.Module:
    """timm's ``mobilenetv2_100`` with 1,001 outputs (0 is the background), the same function as the folded network."""
    net: Any = timm.create_model("mobilenetv2_100", num_classes=1001).double().eval()
    *convolutions, (weight, net.classifier.bias.data) = folded
    net.classifier.weight.data = weight.flatten(1)
    layers = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    sums: dict[nn.Module, Tensor] = {}

    def add(norm: nn.Module, given: tuple[Tensor]) -> None:
        both = torch.stack([given[0].mean((0, 2, 3)), given[0].square().mean((0, 2, 3))])
        sums[norm] = sums.get(norm, 0.0) + both

    for layer, norm, (weight, bias) in zip(layers, norms, convolutions, strict=True):
        layer.weight.data.copy_(weight)
        norm.bias.data.copy_(bias)
        norm.running_var = torch.full_like(bias, 1 - norm.eps)
        norm.register_forward_pre_hook(add)
        if layer.stride == (2, 2):  # TensorFlow's SAME pads right and below
            layer.padding = (0, 0)
            layer.register_forward_pre_hook(lambda _, given: F.pad(given[0], (0, 1, 0, 1)))
    for part in inputs.split(PART):
        net(part)
    for layer, norm in zip(layers, norms, strict=True):
        mean, square = sums[norm] / (len(inputs) // PART)
        scale, mean = rounded((square - mean.square() + norm.eps).sqrt()), rounded(mean)
        layer.weight.data /= scale[:, None, None, None]
        norm.weight.data, norm.running_mean = scale, mean / scale
        norm.bias.data += mean
    return net


def main(words: Sequence[str]) -> int:
    """Write the file and print its path."""
    if len(words) != 3:
        raise SystemExit(__doc__)
    source, data, folder = map(Path, words)
    net = with_batch_norm(read(source), images(data))
    print(write_weights(net.float().state_dict(), folder, "mobilenetv2_100_tflite"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
