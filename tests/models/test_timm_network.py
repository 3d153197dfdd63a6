"""Networks of timm by their name: split into body and head, trained by methods that need groups, heads and features."""

from pathlib import Path

import pytest
import timm
import torch
from federations import near
from safetensors.torch import save_file
from tiny_runs import carry_out, tiny
from torch import nn

from benchmark.config.schema import PathsConfig
from benchmark.errors import ConfigError
from benchmark.models.flat import FlatModel
from benchmark.models.networks import build_net
from benchmark.models.pretrained import read_weights
from methods.core.vectors import HEAD, NORM, OTHER_NORM

SHAPE = (3, 32, 32)
NETWORKS = {
    "test_vit": OTHER_NORM,
    "test_convnext": OTHER_NORM,
    "test_efficientnet": NORM,
    "test_resnet": NORM,
}
"""A small ViT, ConvNeXt, EfficientNet and ResNet of timm, and the group of their normalisation layers."""


@pytest.mark.parametrize(("name", "group"), NETWORKS.items())
def test_a_network_is_split_and_its_parameters_have_groups(name: str, group: str) -> None:
    """timm itself gives the same features: forward_head(forward_features(x), pre_logits=True)."""
    net = build_net("timm", 5, SHAPE, {"architecture": name}, 0).eval()
    x = torch.rand(2, *SHAPE)
    with torch.no_grad():
        z = net.features(x)
        near(z, net.body.forward_head(net.body.forward_features(x), pre_logits=True))
        near(net(x), z @ net.classifier.weight.T + net.classifier.bias)
    width = timm.create_model(name).num_features
    assert z.shape == (2, width) and net.feature_dim == width
    counts = {
        kind: sum(p.numel() for m in net.modules() if isinstance(m, types) for p in m.parameters())
        for kind, types in ((NORM, nn.BatchNorm2d), (OTHER_NORM, nn.LayerNorm))
    }
    assert counts[group] > 0
    layout = FlatModel(net).layout
    assert {kind: int(layout.mask(kind).sum()) for kind in counts} == counts
    assert int(layout.mask(HEAD).sum()) == 5 * width + 5


@pytest.mark.parametrize("method", ["fedbn", "fedrep", "fedmr"])
@pytest.mark.parametrize("name", NETWORKS)
def test_methods_train_it(name: str, method: str, tmp_path: Path) -> None:
    config = tiny(
        tmp_path,
        {
            "dataset": {"options": {"size": 32}},
            "model": {"name": "timm", "architecture": name, "pretrained": False},
            "method": method,
            "train": {"rounds": 1, "steps": 1, "epochs": None, "clients_per_round": 2},
        },
    )
    assert carry_out(config).state == "done"


def test_weights_of_a_file_at_another_image_size(tmp_path: Path) -> None:
    """Beside the position embedding, which timm resamples, all tensors are those of the file."""
    whole = timm.create_model("test_vit", num_classes=7)
    save_file(whole.state_dict(), tmp_path / "test_vit.r160_in1k.safetensors")
    paths = PathsConfig(weights=str(tmp_path))
    given = {"architecture": "test_vit", "pretrained": True}
    body = build_net("timm", 5, SHAPE, given, 0, lambda source: read_weights(source, paths)).body.state_dict()
    file = {name: t for name, t in whole.state_dict().items() if not name.startswith("head")}
    assert body.keys() == file.keys()
    assert body["pos_embed"].shape[1] == 1 + 4 != file["pos_embed"].shape[1]
    assert all(torch.equal(t, body[name]) for name, t in file.items() if name != "pos_embed")


def test_no_weights(tmp_path: Path) -> None:
    """Without internet, one message names the file, where to get it, and where to put it."""
    paths = PathsConfig(weights=str(tmp_path))

    def build(name: str) -> None:
        given = {"architecture": name, "pretrained": True}
        build_net("timm", 5, SHAPE, given, 0, lambda source: read_weights(source, paths))

    with pytest.raises(ConfigError) as caught:
        build("test_resnet.r160_in1k")
    path = tmp_path / "test_resnet.r160_in1k.safetensors"
    url = "https://huggingface.co/timm/test_resnet.r160_in1k/resolve/main/model.safetensors"
    assert all(part in str(caught.value) for part in (str(path), url, "FEDTABLES_WEIGHTS"))
    path.write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="cannot read it"):
        build("test_resnet")
    save_file(timm.create_model("test_efficientnet").state_dict(), path)
    with pytest.raises(ConfigError, match="weights of another network"):
        build("test_resnet")


@pytest.mark.parametrize(
    ("parameters", "shape", "said"),
    [
        ({"architecture": "resnt18"}, SHAPE, "Did you mean 'resnet18'"),
        ({"architecture": "test_resnet.in5k"}, SHAPE, "timm.list_pretrained"),
        ({"architecture": "deit_tiny_distilled_patch16_224"}, SHAPE, "one linear layer"),
        ({"architecture": "levit_128s"}, (3, 64, 64), "one linear layer"),
        ({"architecture": "test_vit"}, (3, 8, 8), "images of 8 x 8 pixels"),
        ({"architecture": "test_vit", "options": {"patches": 4}}, SHAPE, "'patches'"),
    ],
)
def test_refused(parameters: dict[str, object], shape: tuple[int, int, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_net("timm", 5, shape, parameters, 0)
