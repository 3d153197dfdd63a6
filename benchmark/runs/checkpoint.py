"""Reads checkpoints: the state of a run after some round, in one file."""

import errno
import logging
from pathlib import Path
from typing import Any

import torch

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError
from benchmark.system import explain

log = logging.getLogger("fedtables")


def load(path: Path, config: RunConfig) -> dict[str, Any] | None:
    """The checkpoint of a run, in the host's memory; None if there is no file, or if it is damaged or another run's.

    Raises:
        StorageError: It cannot be read, or not into the memory that there is. It may be good.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as stream:
            content: dict[str, Any] = torch.load(stream, map_location="cpu", weights_only=True)
        is_its_own = (content["hash"], content["seed"]) == (config.hash, config.seed)
    except Exception as error:  # torch raises many kinds of errors for a file that is not its own
        # In a file that is cut off torch looks for a place before its beginning.
        refused = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        if refused or explain(error):
            raise StorageError(f"{path.absolute()}: cannot be read ({error}). It stays as it is.") from error
        log.warning("%s: damaged (%s); it is not used", path, type(error).__name__)
        return None
    return content if is_its_own else None
