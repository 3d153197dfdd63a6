"""Workers of this machine: processes that run from the snapshot of the code, each with its own environment and GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import code
from benchmark.launch.resources import assign_devices
from benchmark.launch.settings import LocalSettings
from benchmark.launch.work import Plan
from benchmark.paths import VARIABLE

THREAD_VARIABLES = (
    "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS".split()
)
"""Environment variables that numerical libraries read when they are imported."""


def environment(place: Path) -> dict[str, str]:
    """The variables by which a process runs from a snapshot."""
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
        snapshot = Path(self.plan.root) / "code" / self.plan.code
        base = (
            os.environ | dict.fromkeys(THREAD_VARIABLES, str(self.settings.threads)) | environment(snapshot)
        )
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
