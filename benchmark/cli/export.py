"""``python -m benchmark export``: the trained body of a run as a file that other runs start from, or runs to W&B."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from benchmark.cli.options import TrackingOptions, parse, tracking_settings
from benchmark.cli.runs import parse_with_run
from benchmark.config.compose import resolve
from benchmark.config.files import read_yaml
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import ResultsOptions
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.tracking import Wandb

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 8
"""Digits of the content's SHA-256 in the name of the file."""


class ExportOptions(ResultsOptions):
    """Options of the command."""

    name: str = Field("", description="first part of the file's name; the digest of its content follows")
    out: Path | None = Field(None, description="folder of the file; if left out: the folder of all weights")


class WandbOptions(TrackingOptions, ResultsOptions):
    """What is sent, and where."""


def main(words: Sequence[str]) -> int:
    """Write the body after the last round of one run, and print how a run starts from it; exit code 0.

    With the word ``wandb``: send what is missing of finished runs; exit code 1 if W&B cannot be used.
    """
    if words[:1] == ["wandb"]:
        return _send(parse(words[1:], "export wandb", WandbOptions))
    results, key, options = parse_with_run(words, "export", ExportOptions)
    if not options.name or "/" in options.name:
        raise ConfigError(wrong("name", options.name, "the first part of the file's name, mnist say"))

    from benchmark.models.pretrained import weights_folder
    from benchmark.runs import build, checkpoint, data

    folder = results.run(key)
    if not folder.is_finished:
        expected = "a run that is done. Give the command that made it again"
        raise ConfigError(wrong("run", f"{key}, which is not finished", expected))
    plain = read_yaml(folder.path / "config.yaml", "configuration")
    del plain["hash"]
    config = resolve(plain | {"paths": plain.get("paths", {}) | {"results": str(options.results)}})
    saved = checkpoint.load(folder.path / "checkpoint.pt", config)
    if saved is None:
        expected = "the one after the last round"
        raise ConfigError(
            wrong("checkpoint", "none", expected, where="with runtime.keep_checkpoint=true of the run")
        )
    model = build.build_run(config, data.load_data(config)).model
    model.w.copy_(saved["state"]["w"])
    model.buffers.copy_(saved["state"]["buffers"])
    path = write_weights(
        model.net.body.state_dict(), options.out or weights_folder(config.paths), options.name
    )
    print(f"{path}\nruns start from it with +model.start={path.absolute() if options.out else path.name}")
    return 0


def _send(options: WandbOptions) -> int:
    settings = tracking_settings(options, "wandb")
    if not settings.active:
        raise ConfigError(
            "export wandb: tracking is off, or tracking.mode or the variable WANDB_MODE is disabled; expected online "
            "or offline."
        )
    results = ResultsFolder(options.results).existing()
    wandb = Wandb(settings=settings, root=results.root.absolute())
    sent = sum(
        wandb.send_finished(run) for key in results.run_keys() if (run := results.run(key)).is_finished
    )
    print(f"{sent} runs sent")
    return int(wandb.failed)


def write_weights(tensors: "Mapping[str, Tensor]", folder: Path, name: str) -> Path:
    """Write tensors as ``<name>-<first digits of the content's SHA-256>.pth``, which is returned."""
    import torch

    stream = io.BytesIO()
    torch.save({key: tensor.clone() for key, tensor in tensors.items()}, stream)
    path = folder / f"{name}-{hashlib.sha256(stream.getvalue()).hexdigest()[:DIGITS]}.pth"
    write_with_folder(path, stream.getvalue())
    return path
