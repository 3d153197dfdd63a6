"""Cores and GPUs of this machine, and which worker gets which."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmark.errors import ConfigError, wrong
from benchmark.launch.settings import LocalSettings
from benchmark.system import usable_cores


def cuda_devices() -> int:
    """GPUs that torch would see in a worker. Imports torch only if there are traces of an NVIDIA driver."""
    if not shutil.which("nvidia-smi") and not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    import torch

    return torch.cuda.device_count()


def assign_devices(tasks: int, settings: LocalSettings) -> list[str | None]:
    """The value of CUDA_VISIBLE_DEVICES for each worker to start; None leaves the variable as it is.

    There are no more workers than ``tasks``. Devices are assigned in turn. `ConfigError` for one that does not exist.
    """
    devices, workers = settings.devices, settings.workers
    cpu_only = set(devices or ()) == {"cpu"}
    count = 0 if cpu_only else cuda_devices()
    every = [f"cuda:{index}" for index in range(count)]
    names = every if not devices or (count and devices == ("cuda",)) else devices
    visible: list[str | None] = ["" if cpu_only else _visible(name, names, count) for name in names] or [None]
    if workers is None:
        workers = len(visible) if count else max(1, usable_cores() // settings.threads)
    return [visible[index % len(visible)] for index in range(min(workers, tasks))]


def _visible(device: str, devices: Sequence[str], count: int) -> str:
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match or int(match[1]) >= count:
        here = ", ".join(f"cuda:{index}" for index in range(count)) or "no GPU"
        expected = f"cpu alone, GPUs by number (here: {here}), or null for all GPUs"
        raise ConfigError(wrong("launcher.devices", list(devices), expected))
    # The numbers are those of torch, which counts what the environment lets it see: numbers or GPU-<uuid>.
    listed = list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    return listed[int(match[1])].strip() if listed else match[1]
