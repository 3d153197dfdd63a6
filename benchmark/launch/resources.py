"""Cores and GPUs of this machine, and which worker gets which."""

import os
import re
import shutil
import subprocess
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


def gpu_memory() -> list[float]:
    """Memory of each GPU that this process may use, in GB. Asks the driver, because torch would allocate some."""
    return [float(line) * 2**20 / 1e9 for line in ask_driver("memory.total")]


def ask_driver(field: str) -> list[str]:
    """A value of nvidia-smi for each GPU that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    command += ["-i", visible] if visible else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def assign_devices(tasks: int, settings: LocalSettings) -> list[str | None]:
    """The value of CUDA_VISIBLE_DEVICES for each worker to start; None leaves the variable as it is.

    There are no more workers than ``tasks``. Devices are assigned in turn. `ConfigError` for one that does not exist.
    """
    devices, workers = settings.devices, settings.workers
    cpu_only = set(devices or ()) == {"cpu"}
    count = 0 if cpu_only else cuda_devices()
    names = devices or [f"cuda:{index}" for index in range(count)]
    visible: list[str | None] = ["" if cpu_only else _visible(name, names, count) for name in names] or [None]
    if workers is None:
        by_cores = max(1, usable_cores() // settings.threads)
        by_memory = _fitting(settings.gpu_gb_per_run, names) if count and settings.gpu_gb_per_run else None
        workers = min(by_memory, by_cores) if by_memory else len(visible) if count else by_cores
    return [visible[index % len(visible)] for index in range(min(workers, tasks))]


def _fitting(gpu_gb_per_run: float, devices: Sequence[str]) -> int:
    """How many runs fit on the GPUs by their memory, at least one on each."""
    memory = {f"cuda:{index}": gigabytes for index, gigabytes in enumerate(gpu_memory())}
    return sum(max(1, int(memory.get(device, 0.0) // gpu_gb_per_run)) for device in devices)


def _visible(device: str, devices: Sequence[str], count: int) -> str:
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match or int(match[1]) >= count:
        here = ", ".join(f"cuda:{index}" for index in range(count)) or "no GPU"
        expected = f"cpu alone, GPUs by number (here: {here}), or null for all GPUs"
        raise ConfigError(wrong("launcher.devices", list(devices), expected))
    # The numbers are those of torch, which counts what the environment lets it see.
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[int(match[1])].strip() if listed else match[1]
