"""The trained body of a run as a file that other runs start from; finished runs as an archive, or to W&B."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from benchmark.commands.options import TrackingOptions, tracking_settings
from benchmark.commands.results import Runs
from benchmark.errors import ConfigError, nearest, wrong
from benchmark.experiments.selection import ResultsOptions
from benchmark.runs.archive import By, write_archive
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.listing import find_runs
from benchmark.runs.status import RunState
from benchmark.tracking import Wandb

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 8
"""Digits of the content's SHA-256 in the name of the file."""


MATCHES = 20
"""Runs that the message about a name that fits several lists."""


class ExportOptions(ResultsOptions):
    """Which run, and the name of its file."""

    run: str = Field("", exclude=True)
    name: str = Field("", description="first part of the file's name; the digest of its content follows")
    out: Path | None = Field(None, description="folder of the file; if left out: the folder of all weights")


class ArchiveOptions(ResultsOptions):
    """Who ran the runs, and the file."""

    by: By = Field("", title="NAME", description="who ran them: at most 40 letters, digits, - and _")
    out: Path | None = Field(None, title="FILE", description="the archive; if left out: NAME.zip")


class WandbOptions(TrackingOptions, ResultsOptions):
    """What is sent, and where."""


def export_weights(options: ExportOptions) -> Path:
    """Write the body after the last round of one run; the file."""
    if not options.name or "/" in options.name:
        raise ConfigError(wrong("name", options.name, "the first part of the file's name, mnist say"))
    results = ResultsFolder(options.results).existing()
    key = run_called(results, options.run)
    folder = results.run(key)

    from benchmark.models.pretrained import weights_folder
    from benchmark.runs import build, checkpoint, data

    if not folder.is_finished:
        expected = "a run that is done. Give the command that made it again"
        raise ConfigError(wrong("run", f"{key}, which is not finished", expected))
    config = folder.read_config()
    saved = checkpoint.load(folder.path / "checkpoint.pt", config)
    if saved is None:
        expected = "the one after the last round"
        raise ConfigError(
            wrong("checkpoint", "none", expected, where="with runtime.keep_checkpoint=true of the run")
        )
    model = build.build_run(config, data.load_data(config)).model
    model.w.copy_(saved["state"]["w"])
    model.buffers.copy_(saved["state"]["buffers"])
    tensors = model.net.body.state_dict()
    return write_weights(tensors, options.out or weights_folder(config.paths), options.name)


def run_called(results: ResultsFolder, text: str) -> str:
    """The key of the only run whose folder has ``text`` in its path."""
    name = text.strip("/").removeprefix(f"{results.root}/").removeprefix("runs/")
    keys = list(results.run_keys())
    matches = [key for key in keys if name in key]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        there = sorted({key.partition("/")[0] for key in keys})
        raise ConfigError(f"export: no run in {results.root}/runs is called {text!r}.{nearest(name, there)}")
    listed = "\n  ".join([*matches[:MATCHES], *["..."] * (len(matches) > MATCHES)])
    raise ConfigError(f"export: {text!r} fits {len(matches)} runs; name one:\n  {listed}")


def archive_runs(options: ArchiveOptions, where: Mapping[str, str]) -> tuple[Path, Runs]:
    """Write the finished runs of this folder that fit ``where``; the file, and the runs.

    Left out is what was imported, and what the next launch carries out again.
    """
    index = RunIndex(ResultsFolder(options.results).existing())
    ended = (RunState.DONE, RunState.DIVERGED)
    runs = Runs(run for run in find_runs(index, where) if run.state in ended and not run.files.by)
    runs.problems = tuple(index.problems.values())
    if not runs:
        words = " ".join(f"{key}={value}" for key, value in where.items())
        raise ConfigError(
            wrong("export archive", words, "conditions that a finished run of this folder fits")
        )
    path = options.out or Path(f"{options.by}.zip")
    write_archive(path, {run.key: run.files for run in runs}, options.by)
    return path, runs


def send_runs(options: WandbOptions) -> tuple[int, bool]:
    """Send what is missing of finished runs to W&B: how many were sent, and whether W&B cannot be used."""
    settings = tracking_settings(options, "wandb")
    if not settings.active:
        raise ConfigError(
            "export wandb: tracking is off, or tracking.mode or the variable WANDB_MODE is disabled; expected online "
            "or offline."
        )
    results = ResultsFolder(options.results).existing()
    wandb = Wandb(settings=settings, root=results.root.absolute())
    runs = [run for key in results.run_keys() if (run := results.run(key)).is_finished]
    sent = sum(map(wandb.send_finished, runs))
    return sent, wandb.failed


def write_weights(tensors: "Mapping[str, Tensor]", folder: Path, name: str) -> Path:
    """Write tensors as ``<name>-<first digits of the content's SHA-256>.pth``, which is returned."""
    import torch

    stream = io.BytesIO()
    torch.save({key: tensor.clone() for key, tensor in tensors.items()}, stream)
    path = folder / f"{name}-{hashlib.sha256(stream.getvalue()).hexdigest()[:DIGITS]}.pth"
    write_with_folder(path, stream.getvalue())
    return path
