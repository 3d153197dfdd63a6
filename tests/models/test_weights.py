"""Trained weights: files found, checked and put into bodies; clear words where they are missing or wrong."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor
from torchvision.models import ResNet50_Weights

from benchmark.config.schema import NamedConfig, PathsConfig
from benchmark.errors import ConfigError
from benchmark.models import networks as models
from benchmark.models import weights as files
from benchmark.models.networks import FlatModel, Net, build_net, weights_of
from benchmark.models.pretrained import EFFICIENTNET_B0, MOBILENETV2, RESNET50, Weights
from benchmark.models.weights import fetch_weights, read_weights, weights_folder

ORIGINALS = {
    "resnet50": "resnet50",
    "efficientnet_b0": "efficientnet_b0",
    "mobilenetv2_gn": "mobilenetv2_100",
}
"""Our name -> the network with 1,000 classes that its owner's file is for."""


def made_up(name: str) -> dict[str, Tensor]:
    """Random values under the names and in the shapes of the owner's file."""
    network = timm.create_model(ORIGINALS[name], pretrained=False)
    generator = torch.Generator().manual_seed(3)
    return {
        key: t if t.dtype == torch.int64 else torch.rand(t.shape, generator=generator) + 0.5
        for key, t in network.state_dict().items()
    }


Published = Callable[[str, object], Path]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    """``published(name, content)``: a file with this content is what the model's owner published; returns its place."""
    monkeypatch.setattr(models, "_weights", dict(models._weights))
    monkeypatch.setattr(files, "_checked", {})
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path))

    def write(name: str, content: object) -> Path:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        whole = content if isinstance(content, bytes) else buffer.getvalue()
        path = tmp_path / f"fake-{hashlib.sha256(whole).hexdigest()[:8]}.pth"
        path.write_bytes(whole)
        known = models._weights[name]
        models._weights[name] = replace(known, url=f"https://weights.invalid/{path.name}")
        return path

    return write


def built(name: str, classes: int = 5, **parameters: object) -> Net:
    return build_net(
        name,
        classes,
        (3, 32, 32),
        {"pretrained": True} | parameters,
        0,
        lambda source: read_weights(source, PathsConfig()),
    )


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_body_has_the_files_values_and_the_head_those_of_the_seed(
    name: str, published: Published
) -> None:
    given = made_up(name)
    published(name, given)
    net, plain = built(name), build_net(name, 5, (3, 32, 32), {}, 0)
    head = weights_of(name).head  # type: ignore[union-attr]
    group_norm = name == "mobilenetv2_gn"
    expected = {
        key: t
        for key, t in given.items()
        if not key.startswith(head) and not (group_norm and ("running" in key or "tracked" in key))
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
    net = built("efficientnet_b0", **settings)
    plain = build_net("efficientnet_b0", 5, (3, 32, 32), settings, 0)
    backbone = net.body[0]
    assert torch.equal(backbone.conv_stem.weight, given["conv_stem.weight"])
    for ours, drawn in ((backbone.classifier, plain.body[0].classifier), (net.body[1], plain.body[1])):
        assert torch.equal(ours.state_dict()["weight" if ours is net.body[1] else "0.weight"],
                           drawn.state_dict()["weight" if ours is net.body[1] else "0.weight"])  # fmt: skip


def test_a_file_without_batch_norms_counter_will_do(published: Published) -> None:
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
    assert (RESNET50.file, RESNET50.digits) == ("resnet50-0676ba61.pth", "0676ba61")
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


def model(name: str, **parameters: object) -> NamedConfig:
    return NamedConfig.model_validate({"name": name, **parameters})


def test_no_file_and_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    paths = PathsConfig(weights=str(folder))
    with pytest.raises(ConfigError) as caught:
        fetch_weights(model("resnet50", pretrained=True), paths)
    message = str(caught.value)
    assert message.startswith(
        "model.pretrained: resnet50-0676ba61.pth is not there and cannot be downloaded ("
    )
    for part in (
        f"looked at: {folder}/resnet50-0676ba61.pth",
        f"found:     no .pth file in {folder}",
        "get it:    https://download.pytorch.org/models/resnet50-0676ba61.pth, about 103 MB",
        "docs.pytorch.org/vision",
        f"put it:    into {folder}",
        "paths.weights=FOLDER or FEDTABLES_WEIGHTS",
        "model.pretrained to false",
    ):
        assert part in message
    assert not folder.exists()
    fetch_weights(model("resnet50", pretrained=False), paths)  # nothing is needed
    fetch_weights(model("tiny_cnn"), paths)


def test_the_message_names_what_lies_there_instead(tmp_path: Path) -> None:
    (tmp_path / "resnet50-11ad3fa6.pth").write_bytes(b"another version")
    with pytest.raises(ConfigError, match=r"found:     resnet50-11ad3fa6\.pth in "):
        fetch_weights(model("resnet50", pretrained=True), PathsConfig(weights=str(tmp_path)))
    assert [p.name for p in tmp_path.iterdir()] == ["resnet50-11ad3fa6.pth"]


def test_with_a_network_the_file_is_downloaded(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    path = published("mobilenetv2_gn", {"a": torch.ones(2)})
    content, asked = path.read_bytes(), []
    path.unlink()

    def download(url: str, target: str, digits: str, progress: bool) -> None:
        asked.append((url, digits))
        Path(target).write_bytes(content)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    source = weights_of("mobilenetv2_gn")
    assert source is not None
    for _ in range(2):
        fetch_weights(model("mobilenetv2_gn", pretrained=True), PathsConfig())
    assert asked == [(source.url, source.digits)]
    assert torch.equal(read_weights(source, PathsConfig())["a"], torch.ones(2))


@pytest.mark.parametrize("how", ["cut", "other bytes", "empty"])
def test_a_damaged_file(published: Published, how: str) -> None:
    path = published("resnet50", {"a": torch.ones(100)})
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-50], "other bytes": content[:-1] + b"x", "empty": b""}[how])
    with pytest.raises(
        ConfigError, match="is not the file that is published under its name: its SHA-256"
    ) as e:
        fetch_weights(model("resnet50", pretrained=True), PathsConfig())
    assert str(path) in str(e.value)
    assert f"https://weights.invalid/{path.name}" in str(e.value)
    path.write_bytes(content)
    fetch_weights(model("resnet50", pretrained=True), PathsConfig())
    path.write_bytes(content + b"more")  # noticed, though it was right before
    with pytest.raises(ConfigError, match="its SHA-256"):
        fetch_weights(model("resnet50", pretrained=True), PathsConfig())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive of torch", r"torch cannot read it"),
        (Path("code, not tensors"), r"torch cannot read it"),
        ([torch.ones(2)], r"it holds a list and not tensors by name"),
        ({"epoch": 3}, r"not tensors by name"),
    ],
)
def test_a_file_that_holds_something_else(published: Published, content: object, said: str) -> None:
    published("resnet50", content)
    with pytest.raises(ConfigError, match=said):
        built("resnet50")


def _changed(given: Mapping[str, Tensor], how: str) -> dict[str, Tensor]:
    changed = dict(given)
    if how == "missing":
        changed.pop("conv1.weight")
    elif how == "unknown":
        changed["layer9.weight"] = torch.ones(1)
    else:
        changed["conv1.weight"] = torch.ones(64, 3, 3, 3)
    return changed


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", r"Missing: conv1\.weight\. Unknown: none"),
        ("unknown", r"Missing: none\. Unknown: layer9\.weight"),
        ("shape", r"Other shapes: conv1\.weight \(64, 3, 3, 3\) instead of \(64, 3, 7, 7\)"),
    ],
)
def test_weights_of_another_network(published: Published, how: str, said: str) -> None:
    path = published("resnet50", _changed(made_up("resnet50"), how))
    with pytest.raises(ConfigError, match=said) as caught:
        built("resnet50")
    assert path.name in str(caught.value)


def test_many_names_are_cut_short(published: Published) -> None:
    published("resnet50", made_up("mobilenetv2_gn"))
    with pytest.raises(ConfigError, match=r"these are weights of another network.*and \d+ more"):
        built("resnet50")


def test_without_a_reader_nothing_is_read() -> None:
    with pytest.raises(ConfigError, match="no trained weights can be read here"):
        build_net("resnet50", 2, (3, 32, 32), {"pretrained": True}, 0)


def test_digits_are_read_from_the_name() -> None:
    assert Weights("https://x/a/b_c-d-0123abcd.pth", "", 1, "fc.").digits == "0123abcd"
