"""Files of trained weights: found, downloaded, checked and read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmark.config.schema import NamedConfig, PathsConfig
from benchmark.errors import ConfigError
from benchmark.models.networks import weights_of
from benchmark.models.pretrained import Weights

STALL_SECONDS = 20.0
"""Silence after which a download is given up."""

_checked: dict[Path, tuple[int, int]] = {}
"""Files whose digest was right, with size and time of change: one file serves thousands of runs."""


def weights_folder(paths: PathsConfig) -> Path:
    """``paths.weights``, else FEDTABLES_WEIGHTS, else where torch.hub keeps its downloads."""
    named = paths.weights or os.environ.get("FEDTABLES_WEIGHTS")
    return (Path(named) if named else Path(torch.hub.get_dir()) / "checkpoints").expanduser().absolute()


def fetch_weights(model: NamedConfig, paths: PathsConfig) -> None:
    """Find or download what ``model`` starts from, if it starts from trained weights.

    Raises:
        ConfigError: The file is not there and cannot be downloaded, or it is damaged or another one.
    """
    source = weights_of(model.name)
    if model.parameters.get("pretrained") is True and source is not None:
        _found(source, weights_folder(paths))


def read_weights(source: Weights, paths: PathsConfig) -> Mapping[str, Tensor]:
    """The tensors of ``source`` by name, on the CPU.

    Raises:
        ConfigError: As `fetch_weights`, or the file holds something else than named tensors.
    """
    path = _found(source, weights_folder(paths))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise _bad(source, path, f"torch cannot read it ({reason})") from error
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise _bad(source, path, f"it holds a {type(content).__name__} and not tensors by name")
    return content


def _found(source: Weights, folder: Path) -> Path:
    path = folder / source.file
    if not path.is_file():
        _download(source, path)
    try:
        stat = path.stat()
        mark = (stat.st_size, stat.st_mtime_ns)
        if _checked.get(path) == mark:
            return path
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); change its rights.") from error
    if not digest.startswith(source.digits):
        raise _bad(
            source, path, f"its SHA-256 begins with {digest[: len(source.digits)]} and not {source.digits}"
        )
    _checked[path] = mark
    return path


def _download(source: Weights, path: Path) -> None:
    # torch offers no timeout, and urllib's default is to wait for ever.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    made = not path.parent.is_dir()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(source.url, str(path), source.digits, progress=sys.stderr.isatty())
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split()) or type(error).__name__
        names = sorted(p.name for p in path.parent.glob("*.pth")) if path.parent.is_dir() else []
        if made:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise ConfigError(
            f"model.pretrained: {source.file} is not there and cannot be downloaded ({reason}).\n"
            f"  looked at: {path}\n"
            f"  found:     {', '.join(names[:5]) or 'no .pth file'} in {path.parent}\n"
            f"  get it:    {source.url}, about {source.megabytes} MB; what it is: {source.page}\n"
            f"  put it:    into {path.parent}, under this name; another folder: paths.weights=FOLDER or "
            "FEDTABLES_WEIGHTS\n"
            "  or set model.pretrained to false and start from random weights"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def _bad(source: Weights, path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"model.pretrained: {path} is not the file that is published under its name: {problem}; it has "
        f"{path.stat().st_size:,} bytes, about {source.megabytes} MB are right. Likely a download that broke off, or "
        f"another file. Delete it and get it from {source.url} ({source.page})."
    )
