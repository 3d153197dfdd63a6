"""Cores and GPUs of this machine, and which worker gets which."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmark.errors import ConfigError, wrong
from benchmark.launch.settings import LocalSettings
from benchmark.system import usable_cores


def cuda_devices() -> int:
    """GPUs that torch would see in a worker. Imports torch only if there are traces of an NVIDIA driver."""
    if not shutil.which("nvidia-smi") and not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    import torch

    count, listed = torch.cuda.device_count(), _listed()
    # CUDA shows a process one MIG device, however many are listed. Each worker gets one of them.
    return len(listed) if count == 1 and listed and listed[0].startswith("MIG-") else count


def _listed() -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES: numbers, ``GPU-<uuid>``, ``MIG-<uuid>``, ``MIG-GPU-<uuid>/1/2``."""
    return [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]


def gpu_memory() -> dict[str, float]:
    """GB of memory by UUID, of all GPUs in the order of their numbers, then of MIG devices; 0 if it is unknown.

    Asks the driver, because torch would allocate some.
    """
    rows = ask_driver("--query-gpu=uuid,memory.total --format=csv,noheader,nounits")
    gpus = re.findall(r"^(\S+), *(\d*)", "\n".join(rows), re.MULTILINE)
    parts = re.findall(r"MIG \S*?(\d+)gb\S* .*UUID: (MIG-[^\s)]+)", "\n".join(ask_driver("-L")))
    memory = {uuid: float(mib or 0) * 2**20 / 1e9 for uuid, mib in gpus}
    return memory | {uuid: float(gigabytes) for gigabytes, uuid in parts}


def uuid_of(device: str, known: Sequence[str]) -> str:
    """Which of ``known`` an entry of CUDA_VISIBLE_DEVICES means, by number or beginning; itself if it means none."""
    if device.isdigit():
        return known[int(device)] if int(device) < len(known) else device
    return next((uuid for uuid in known if uuid.startswith(device)), device)


def shared_gpus(devices: Iterable[str | None]) -> list[str]:
    """The GPUs that `assign_devices` gave to several workers."""
    return [device for device, workers in Counter(devices).items() if device and workers > 1]


def ask_driver(options: str) -> list[str]:
    """The lines that nvidia-smi prints with some options; none where it fails."""
    try:
        done = subprocess.run(["nvidia-smi", *options.split()], capture_output=True, text=True, check=True)
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
    every = [f"cuda:{index}" for index in range(count)]
    names = every if not devices or (count and devices == ("cuda",)) else devices
    visible: list[str | None] = ["" if cpu_only else _visible(name, names, count) for name in names] or [None]
    if workers is None:
        by_cores = max(1, usable_cores() // settings.threads)
        by_memory = _fitting(settings.gpu_gb_per_run, visible) if count and settings.gpu_gb_per_run else None
        workers = min(by_memory, by_cores) if by_memory else len(visible) if count else by_cores
    return [visible[index % len(visible)] for index in range(min(workers, tasks))]


def _fitting(gpu_gb_per_run: float, devices: Iterable[str | None]) -> int:
    """How many runs fit on the GPUs by their memory, at least one on each."""
    memory = gpu_memory()
    uuids = [uuid_of(device, list(memory)) for device in devices if device]
    return sum(max(1, int(memory.get(uuid, 0.0) // gpu_gb_per_run)) for uuid in uuids)


def _visible(device: str, devices: Sequence[str], count: int) -> str:
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match or int(match[1]) >= count:
        here = ", ".join(f"cuda:{index}" for index in range(count)) or "no GPU"
        expected = f"cpu alone, GPUs by number (here: {here}), or null for all GPUs"
        raise ConfigError(wrong("launcher.devices", list(devices), expected))
    # The numbers are those of torch, which counts what the environment lets it see.
    listed = _listed()
    return listed[int(match[1])] if listed else match[1]
