"""Pre-trained weights: files are found, checked and put into bodies; clear messages if they are missing or wrong."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor
from torchvision.models import ResNet50_Weights

from benchmark.config.schema import NamedConfig, PathsConfig
from benchmark.errors import ConfigError
from benchmark.models import networks, pretrained
from benchmark.models.flat import FlatModel
from benchmark.models.networks import Net, build_net, wanted_weights
from benchmark.models.pretrained import (
    EFFICIENTNET_B0,
    MOBILENETV2,
    RESNET50,
    Weights,
    fetch_weights,
    read_weights,
    weights_folder,
)

FILES = {
    "resnet50": ("resnet50", RESNET50),
    "efficientnet_b0": ("efficientnet_b0", EFFICIENTNET_B0),
    "mobilenetv2_gn": ("mobilenetv2_100", MOBILENETV2),
}
"""Our name -> the network with 1,000 classes in timm, its file."""


def made_up(name: str) -> dict[str, Tensor]:
    """Random values with the names and shapes of the owner's file."""
    network = timm.create_model(FILES[name][0], pretrained=False)
    generator = torch.Generator().manual_seed(3)
    return {
        key: t if t.dtype == torch.int64 else torch.rand(t.shape, generator=generator) + 0.5
        for key, t in network.state_dict().items()
    }


Published = Callable[[str, object], tuple[Path, Weights]]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    """``published(name, content)`` publishes a file with this content for a model: (its place, its description)."""
    monkeypatch.setattr(pretrained, "_checked", {})
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path))

    def write(name: str, content: object) -> tuple[Path, Weights]:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        whole = content if isinstance(content, bytes) else buffer.getvalue()
        path = tmp_path / f"fake-{hashlib.sha256(whole).hexdigest()[:8]}.pth"
        path.write_bytes(whole)
        source = replace(FILES[name][1], url=f"https://weights.invalid/{path.name}")
        monkeypatch.setattr(networks.networks[name], "weights", source)
        return path, source

    return write


def built(name: str, **parameters: object) -> Net:
    given = {"pretrained": True} | parameters
    return build_net(name, 5, (3, 32, 32), given, 0, lambda source: read_weights(source, PathsConfig()))


@pytest.mark.parametrize("name", FILES)
def test_the_body_has_the_files_values_and_the_head_those_of_the_seed(
    name: str, published: Published
) -> None:
    given = made_up(name)
    _, source = published(name, given)
    net, plain = built(name), build_net(name, 5, (3, 32, 32), {}, 0)
    group_norm = name == "mobilenetv2_gn"
    expected = {
        key: t
        for key, t in given.items()
        if not key.startswith(source.head) and not (group_norm and ("running" in key or "tracked" in key))
    }
    found = net.body.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], t) for key, t in expected.items())
    for ours, drawn in zip(net.classifier.parameters(), plain.classifier.parameters(), strict=True):
        assert torch.equal(ours, drawn)
    assert [tuple(p.shape) for p in net.classifier.parameters()] == [(5, net.feature_dim), (5,)]
    model = FlatModel(net)
    entry = next(e for e in model.layout.entries if e.group in ("norm", "other_norm"))
    assert torch.equal(entry.view(model.w), given[entry.name.removeprefix("body.")])


def test_layers_behind_the_body_stay_as_drawn(published: Published) -> None:
    given = made_up("efficientnet_b0")
    published("efficientnet_b0", given)
    settings = {"hidden": 7, "projection": 6, "feature_dropout": 0.1}
    net, plain = (
        built("efficientnet_b0", **settings),
        build_net("efficientnet_b0", 5, (3, 32, 32), settings, 0),
    )
    assert torch.equal(net.body[0].conv_stem.weight, given["conv_stem.weight"])
    assert torch.equal(net.body[0].classifier[0].weight, plain.body[0].classifier[0].weight)
    assert torch.equal(net.body[1].weight, plain.body[1].weight)


def test_a_file_may_lack_batch_norms_counter(published: Published) -> None:
    """Files saved by torch before 0.4.1 lack it."""
    given = {key: t for key, t in made_up("resnet50").items() if not key.endswith("num_batches_tracked")}
    published("resnet50", given)
    net = built("resnet50")
    assert torch.equal(net.body.layer1[0].bn1.running_var, given["layer1.0.bn1.running_var"])
    assert int(net.body.bn1.num_batches_tracked) == 0


# The files -----------------------------------------------------------------------------------------------------


def test_the_files_are_those_that_the_libraries_name() -> None:
    assert ResNet50_Weights.IMAGENET1K_V1.url == RESNET50.url
    assert timm.get_pretrained_cfg("mobilenetv2_100.ra_in1k").url == MOBILENETV2.url
    assert timm.get_pretrained_cfg("efficientnet_b0.ra_in1k").url == EFFICIENTNET_B0.url
    assert (MOBILENETV2.file, MOBILENETV2.digits) == ("mobilenetv2_100_ra-b33bc2c4.pth", "b33bc2c4")
    assert timm.get_pretrained_cfg("mobilenetv2_100.ra_in1k").classifier + "." == MOBILENETV2.head
    assert timm.get_pretrained_cfg("resnet50.tv_in1k").classifier + "." == RESNET50.head


def test_where_the_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTABLES_WEIGHTS", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    assert weights_folder(PathsConfig()) == tmp_path / "torch" / "hub" / "checkpoints"
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path / "env"))
    assert weights_folder(PathsConfig()) == tmp_path / "env"
    assert weights_folder(PathsConfig(weights=str(tmp_path / "set"))) == tmp_path / "set"


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ({"name": "resnet50", "pretrained": True}, RESNET50),
        ({"name": "resnet50", "pretrained": False}, None),
        ({"name": "tiny_cnn"}, None),
        ({"name": "unknown", "pretrained": True}, None),
    ],
)
def test_weights_that_a_model_starts_from(model: dict[str, object], wanted: Weights | None) -> None:
    assert wanted_weights(NamedConfig.model_validate(model)) == wanted


@pytest.mark.parametrize("present", ["", "resnet50-11ad3fa6.pth"])
def test_no_file_and_no_network(tmp_path: Path, present: str) -> None:
    folder = tmp_path / "weights"
    if present:
        folder.mkdir()
        (folder / present).write_bytes(b"another version")
    with pytest.raises(ConfigError) as caught:
        fetch_weights(RESNET50, PathsConfig(weights=str(folder)))
    for part in (
        "model.pretrained: resnet50-0676ba61.pth",
        f"{folder}/resnet50-0676ba61.pth",
        f"{present or 'no .pth file'} in {folder}",
        f"{RESNET50.url}, about 103 MB",
        "docs.pytorch.org/vision",
        "FEDTABLES_WEIGHTS",
        "model.pretrained=false",
    ):
        assert part in str(caught.value)
    assert [p.name for p in folder.glob("*")] == [present] * bool(present) and folder.exists() == bool(
        present
    )


def test_with_a_network_the_file_is_downloaded(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    path, source = published("mobilenetv2_gn", {"a": torch.ones(2)})
    content, asked = path.read_bytes(), []
    path.unlink()

    def download(url: str, target: str, digits: str, progress: bool) -> None:
        asked.append((url, digits))
        Path(target).write_bytes(content)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for _ in range(2):
        fetch_weights(source, PathsConfig())
    assert asked == [(source.url, source.digits)]
    assert torch.equal(read_weights(source, PathsConfig())["a"], torch.ones(2))


@pytest.mark.parametrize("how", ["cut", "other bytes", "empty"])
def test_a_damaged_file(published: Published, how: str) -> None:
    path, source = published("resnet50", {"a": torch.ones(100)})
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-50], "other bytes": content[:-1] + b"x", "empty": b""}[how])
    with pytest.raises(ConfigError, match="its SHA-256 begins with") as caught:
        fetch_weights(source, PathsConfig())
    assert str(path) in str(caught.value) and source.url in str(caught.value)
    path.write_bytes(content)
    fetch_weights(source, PathsConfig())
    path.write_bytes(content + b"more")  # noticed, although it was right before
    with pytest.raises(ConfigError, match="its SHA-256"):
        fetch_weights(source, PathsConfig())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive of torch", "torch cannot read it"),
        (Path("code, not tensors"), "torch cannot read it"),
        ([torch.ones(2)], "contains a list"),
        ({"epoch": 3}, "not tensors by name"),
    ],
)
def test_a_file_with_something_else(published: Published, content: object, said: str) -> None:
    published("resnet50", content)
    with pytest.raises(ConfigError, match=said):
        built("resnet50")


@pytest.mark.parametrize(
    ("left_out", "more", "said"),
    [
        ("conv1.weight", {}, r"Missing: conv1\.weight\. Unknown: none"),
        ("", {"layer9.weight": torch.ones(1)}, r"Missing: none\. Unknown: layer9\.weight"),
        (
            "",
            {"conv1.weight": torch.ones(64, 3, 3, 3)},
            r"conv1\.weight \(64, 3, 3, 3\) instead of \(64, 3, 7, 7\)",
        ),
        ("layer", made_up("mobilenetv2_gn"), r"Missing: .* and \d+ more"),
    ],
)
def test_weights_of_another_network(
    published: Published, left_out: str, more: dict[str, Tensor], said: str
) -> None:
    given = {
        k: t for k, t in made_up("resnet50").items() if not left_out or not k.startswith(left_out)
    } | more
    path, _ = published("resnet50", given)
    with pytest.raises(ConfigError, match=said) as caught:
        built("resnet50")
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"), [({}, "cannot be read here"), ({"width_multiplier": 0.5}, "width_multiplier=0.5")]
)
def test_weights_that_cannot_be_used(more: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.pretrained: got True; .*{said}"):
        build_net("resnet50", 2, (3, 32, 32), {"pretrained": True} | more, 0)
