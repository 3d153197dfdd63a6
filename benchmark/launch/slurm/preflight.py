"""A short job before the first ones: does a node see the results folder, this checkout and the same packages?

Jobs that are submitted with it depend on it, so that nothing starts that cannot work. A check that was passed is noted
in ``<results>/launcher/probes`` and not repeated until something of it changes.
"""

import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from benchmark import digests
from benchmark.launch.mps import MPS_CONTROL
from benchmark.launch.resources import cuda_devices
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.paths import PACKAGES, ROOT, ROOTS
from benchmark.runs.files import write_with_folder

VERSIONED = "numpy pandas pydantic scikit-learn scipy submitit timm torch torchvision".split()
"""Packages on which the bits of a run, or the way from a job to its runs, depend."""


@cache
def environment() -> Mapping[str, str]:
    """Versions of Python and of the packages that matter; "" for a package that is not installed."""
    versions = {name: next((d.version for d in distributions(name=name)), "") for name in VERSIONED}
    return {"python": platform.python_version()} | versions


@cache
def sources() -> str:
    """Digest of the program, and of what repositories of the user add to it."""
    folders = [ROOT / "benchmark", *(root / package for root in ROOTS for package in PACKAGES)]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return digests.of({str(path): digests.of_file(path) for path in files})


def differences(expected: Mapping[str, str]) -> str:
    """What differs here from ``expected``: ``torch 2.12.0 (submitted with 2.15.0)``; "" if nothing does."""
    here = environment()
    return ", ".join(
        f"{name} {here.get(name) or 'missing'} (submitted with {value or 'none'})"
        for name, value in expected.items()
        if here.get(name) != value
    )


@dataclass(frozen=True)
class PreflightCheck:
    """A job that checks its node. ``where``: the options that choose a node, and what every job does first."""

    results: str
    where: str
    gpus: int
    mps: bool
    environment: Mapping[str, str]
    sources: str

    @classmethod
    def of(cls, results: Path, settings: SlurmSettings) -> "PreflightCheck":
        """The check that expects what this machine has."""
        options = [settings.place, settings.slurm, settings.preparation, *map(str, ROOTS), sys.executable]
        where = json.dumps(options, sort_keys=True, default=str)
        gpus, mps = settings.gpus_per_job, settings.mps
        return cls(str(results.resolve()), where, gpus, mps, environment(), sources())

    @property
    def name(self) -> str:
        """Name of its job and of its file."""
        return f"fedtables-probe-{digests.of(asdict(self))[:12]}"

    @property
    def path(self) -> Path:
        """Where the job writes what it found."""
        return Path(self.results) / "launcher" / "probes" / f"{self.name}.found"

    def __call__(self) -> None:
        """The job. Raises RuntimeError if something is wrong, so that jobs that depend on it do not start."""
        message = self.check()
        write_with_folder(self.path, message.encode())
        if message:
            raise RuntimeError(message)

    def check(self) -> str:
        """What is wrong with this node, or ""."""
        unlike = differences(self.environment)
        if unlike:
            return f"it has other versions: {unlike}. Make .venv anew for the nodes, or see launcher.modules."
        if sources() != self.sources:
            return f"its {' or '.join(map(str, ROOTS))} is not that of this machine: the files differ."
        if self.gpus and cuda_devices() < self.gpus:
            return f"torch finds {cuda_devices()} GPUs, launcher.gpus_per_job asks for {self.gpus}."
        if self.gpus and self.mps and not shutil.which(MPS_CONTROL):
            return f"it has no {MPS_CONTROL}, which launcher.mps=true needs."
        return ""

    def message(self) -> str | None:
        """What is wrong with the node; "" if nothing is, None if the job has not ended."""
        try:
            return self.path.read_text(errors="replace")
        except OSError:
            return None

    def outcome(self, tasks: Callable[[], Collection[str] | None], log: Path, poll: float) -> str | None:
        """`message`, or why a job that has left the queue wrote none. ``tasks`` asks for names; ``log``: its errors."""
        message = self.message()
        if message is not None:
            return message
        queued = tasks()
        if queued is None or self.name in queued:
            return None
        # It left the queue, perhaps since the last look. A network file system may show its file later.
        time.sleep(poll)
        message = self.message()
        return self._explain(log) if message is None else message

    def _explain(self, log: Path) -> str:
        if log.exists():
            return f"the check ended without a result; see {log}."
        return (
            f"it does not see the results folder {self.results}, or the job was cancelled. Set results=... to a "
            "folder that the nodes share with this machine."
        )
