"""Workers of this machine: processes that run from the snapshot of the code, each with its own environment and GPU."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import code
from benchmark.errors import ConfigError, wrong
from benchmark.launch.settings import LocalSettings
from benchmark.launch.work import Plan
from benchmark.paths import VARIABLE
from benchmark.system import usable_cores

THREAD_VARIABLES = (
    "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS".split()
)
"""Environment variables that numerical libraries read when they are imported."""


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


def environment(place: Path) -> dict[str, str]:
    """The variables by which a process runs from a snapshot. What PYTHONPATH has already is to follow."""
    *repositories, checkout = map(str, code.roots_of(place))
    return {"PYTHONPATH": checkout, VARIABLE: os.pathsep.join(repositories)}


def _ignore_signal() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


@dataclass
class Workers:
    """The worker processes of one launch on one machine.

    Attributes:
        plan: What they carry out.
        settings: How many there are, and on which devices.
        offset: Where the first of them begins in the list of runs; the others follow it.
    """

    plan: Plan
    settings: LocalSettings
    offset: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def start(self, number: int) -> None:
        """Start at most ``number`` processes. Raises OSError if the system refuses."""
        threads = dict.fromkeys(THREAD_VARIABLES, str(self.settings.threads))
        base = os.environ | threads | environment(self.plan.root / "code" / self.plan.code)
        if before := os.environ.get("PYTHONPATH"):
            base["PYTHONPATH"] += os.pathsep + before
        self.processes, self.logs = [], []
        for place, device in enumerate(assign_devices(number, self.settings)):
            own = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
            log = self.plan.path.with_name(f"worker{self.offset + place}.log")
            command = [sys.executable, "-P", "-m", "benchmark.launch.work", str(self.plan.path)]
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [*command, str(self.offset + place)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=base | own,
                    # All processes of a batch job get SIGUSR2, which ends those that do not handle it.
                    preexec_fn=_ignore_signal,
                )
            self.processes.append(process)
            self.logs.append(log)

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self.processes if process.poll() is None]

    def stop(self, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Ask all to save their state, and end those that have not after ``settings.grace`` seconds."""
        for process in self.alive:
            process.terminate()
        began = time.monotonic()
        while self.alive and time.monotonic() - began < self.settings.grace and not is_urgent():
            time.sleep(0.05)
        for process in self.alive:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        """What those that ended badly printed last."""
        bad = [log for log, process in zip(self.logs, self.processes, strict=True) if process.returncode]
        lines = bad[0].read_text(errors="replace").strip().splitlines() if bad else []
        return "\n".join(lines[-20:])
