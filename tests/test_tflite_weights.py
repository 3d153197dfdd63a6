"""scripts/tflite_weights.py: BatchNorm is put back into a folded network, whose function stays."""

import importlib.util
from types import ModuleType

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmark.paths import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tflite_weights", ROOT / "scripts" / "tflite_weights.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_batch_norm_is_put_back(script: ModuleType) -> None:
    """The input of every BatchNorm has its running mean and variance, and the first layer is conv + bias."""
    rng = torch.Generator().manual_seed(0)
    shapes = [
        m.weight.shape for m in timm.create_model("mobilenetv2_100").modules() if isinstance(m, nn.Conv2d)
    ]
    scales = [(2 / shape[1:].numel()) ** 0.5 for shape in shapes]
    folded = [
        (torch.randn(shape, generator=rng).double() * scale, torch.randn(shape[0], generator=rng).double())
        for shape, scale in zip([*shapes, torch.Size([1001, 1280, 1, 1])], [*scales, 0.01], strict=True)
    ]
    x = torch.rand(script.PART, 3, 64, 64, generator=rng).double() * 2 - 1
    as_read = [(weight.to(memory_format=torch.channels_last), bias) for weight, bias in folded]
    net = script.with_batch_norm(as_read, x)
    strides = [
        tensor.stride() for tensor in net.state_dict().values()
    ]  # they are in the file, and so in its digest
    assert strides == [
        tensor.stride() for tensor in timm.create_model("mobilenetv2_100").state_dict().values()
    ]
    seen: list[tuple[_BatchNorm, Tensor]] = []
    for norm in net.modules():
        if isinstance(norm, _BatchNorm):
            norm.register_forward_pre_hook(lambda norm, given: seen.append((norm, given[0].clone())))
    with torch.no_grad():
        net(x)
        weight, bias = folded[0]
        wanted = F.relu6(F.conv2d(F.pad(x, (0, 1, 0, 1)), weight, bias, stride=2))
        torch.testing.assert_close(net.bn1(net.conv_stem(x)), wanted)
    assert len(seen) == 52 + 1  # the first layer twice
    for norm, given in seen:
        assert norm.running_mean is not None
        torch.testing.assert_close(given.mean((0, 2, 3)), norm.running_mean, rtol=1e-3, atol=1e-3)
        variance = given.var((0, 2, 3), unbiased=False) + norm.eps / norm.weight**2
        torch.testing.assert_close(variance, torch.ones_like(variance), rtol=0.0, atol=2e-3)


def test_four_digits(script: ModuleType) -> None:
    assert script.rounded(torch.tensor([123.456, -0.00123449])).tolist() == pytest.approx([123.5, -0.001234])
