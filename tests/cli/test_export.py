"""``export``: the body of one run becomes the start of others."""

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Cli
from tiny_runs import carry_out, folder_of, tiny

from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.models.networks import build_net
from benchmark.runs import checkpoint
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data, prepare_data

Refusal = Callable[[Sequence[str], str], str]


@pytest.fixture
def central(tmp_path: Path) -> RunConfig:
    """A finished run of one client that holds all data, with its checkpoint."""
    config = tiny(tmp_path / "results", {"partition": {"clients": 1}}, keep_checkpoint=True)
    carry_out(config)
    return config


def initial(config: RunConfig) -> tuple[torch.Tensor, int]:
    """(the vector before round 0, how many of its numbers are the body's)."""
    run = build_run(config, load_data(config))
    return run.initial_state().w, run.model.body_size


def test_a_run_starts_from_the_body_of_another(
    central: RunConfig,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path / "weights"))
    code, out, err = cli("export", central.hash, "name=fake", f"results={tmp_path / 'results'}")
    assert code == 0, err
    (path,) = (tmp_path / "weights").iterdir()
    assert f" model.start={path.name}\n" in out
    saved = checkpoint.load(folder_of(central).path / "checkpoint.pt", central)
    assert saved is not None

    # Another data set of as many classes, another seed: the head is drawn anew.
    start = {"model": {"start": path.name}, "dataset": {"options": {"train_size": 120}}}
    config = tiny(tmp_path / "results", start, seed=1)
    prepare_data([config])
    w, body = initial(config)
    torch.testing.assert_close(w[:body], saved["state"]["w"][:body], rtol=0, atol=0)
    assert not torch.equal(w[body:], saved["state"]["w"][body:])

    # The content counts for the hash, and the folder does not.
    elsewhere = tiny(tmp_path / "results", {**start, "model": {"start": str(path)}}, seed=1)
    assert elsewhere.hash == config.hash
    assert initial(elsewhere)[0].equal(w)
    other = path.with_name(path.name.replace("fake-", "fake-00000000"))
    assert tiny(tmp_path / "results", {**start, "model": {"start": other.name}}).hash != config.hash


def test_group_norm_is_calibrated_on_the_clients_training_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images that the run draws: 20 of the clients' own, none of the validation split, the same every time."""
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(
        "benchmark.models.networks.calibrate", lambda body, norms, images: asked.append(images)
    )
    body = build_net("resnet18_32", 4, (1, 8, 8), {"width_multiplier": 0.125}, 0).body
    stream = io.BytesIO()
    torch.save(body.state_dict(), stream)
    path = tmp_path / f"b-{hashlib.sha256(stream.getvalue()).hexdigest()[:8]}.pth"
    path.write_bytes(stream.getvalue())
    model = {"name": "resnet18_gn", "width_multiplier": 0.125, "start": str(path)}
    config = tiny(tmp_path, {"model": model | {"calibration": 20}, "evaluation": {"validation": 0.5}})
    data = load_data(config)
    problem = build_run(config, data).problem
    build_run(config, data)
    first, again = asked
    assert torch.equal(first, again)
    own = {x.numpy().tobytes() for x in problem.transform(problem.images[np.concatenate(data.clients)])}
    assert len({x.numpy().tobytes() for x in first} & own) == len(first) == 20
    build_run(tiny(tmp_path, {"model": model | {"calibration": 0}}), data)
    assert len(asked) == 2


def test_what_cannot_be_a_start(central: RunConfig, tmp_path: Path, cli: Cli) -> None:
    results = f"results={tmp_path / 'results'}"
    cli("export", central.hash, "name=fake", f"out={tmp_path}", results)
    (path,) = tmp_path.glob("fake-*.pth")
    for model, said in (
        ({"start": "fake.pth"}, "fake.pth.*first digits of its SHA-256"),
        ({"start": "absent-0123abcd.pth"}, "absent-0123abcd.pth is not there.*export RUN name=absent"),
        ({"start": str(path), "hidden": 16}, re.escape(path.name) + ".*another network"),
        ({"name": "resnet50", "start": str(path), "pretrained": True}, "model.start.*pretrained"),
    ):
        config = tiny(tmp_path / "results", {"model": model})
        with pytest.raises(ConfigError, match=f"(?s){said}"):
            build_run(config, load_data(config))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ConfigError, match="its SHA-256 begins with"):
        prepare_data([tiny(tmp_path / "results", {"model": {"start": str(path)}})])


def test_what_cannot_be_exported(tmp_path: Path, refusal: Refusal) -> None:
    config = tiny(tmp_path / "results")
    carry_out(config)
    results = f"results={tmp_path / 'results'}"
    stopped = tiny(tmp_path / "results", {"method": "fedavgm"})
    carry_out(stopped, stop=lambda: True)
    refusal(
        ["export", stopped.hash, "name=a", results],
        "run: got '.*, which is not finished'; expected a run that is done",
    )
    refusal(["export", config.hash, "name=a", results], "checkpoint.*none.*keep_checkpoint")
    refusal(["export", "absent", "name=a", results], "export: no run")
    refusal(["export", config.hash, results], "name")
    refusal(["export", results, "name=a"], "name one run")
