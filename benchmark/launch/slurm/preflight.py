"""A short job before the first ones: does a node see the results folder, this checkout and the same packages?

Jobs that are submitted with it depend on it, so that nothing starts that cannot work. A check that was passed is noted
in ``<results>/launcher/probes`` and not repeated until something of it changes.
"""

import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.paths import ROOT
from benchmark.runs.files import write_atomically

PACKAGES = (
    "numpy",
    "pandas",
    "pydantic",
    "scikit-learn",
    "scipy",
    "submitit",
    "timm",
    "torch",
    "torchvision",
)
"""Packages on which the bits of a run, or the way from a job to its runs, depend."""

MODULE = "benchmark.launch.slurm.preflight"
"""This module, as the job starts it."""

NOT_SEEN, NO_CHECKOUT, NO_PYTHON = 90, 91, 92
"""Exit codes of a job that cannot start this module."""


@cache
def environment() -> Mapping[str, str]:
    """Versions of Python and of the packages that matter; "" for a package that is not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


@cache
def sources() -> str:
    """SHA-256 of the program and its configuration."""
    digest = hashlib.sha256()
    for folder in ("benchmark", "conf", "datasets", "methods", "partitions"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


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
    """What a node must have, and ``where`` it is looked for: the partition and other options that choose a node."""

    results: str
    where: str
    gpus: int
    environment: Mapping[str, str]
    sources: str
    root: str = str(ROOT)
    python: str = sys.executable

    @classmethod
    def of(cls, results: Path, settings: SlurmSettings) -> "PreflightCheck":
        """The check that expects what this machine has."""
        where = json.dumps(
            [settings.place, settings.slurm, settings.preparation], sort_keys=True, default=str
        )
        return cls(str(results.resolve()), where, settings.gpus_per_job, environment(), sources())

    @property
    def name(self) -> str:
        """Name of its job and of its files."""
        return f"fedtables-probe-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]}"

    def file(self, suffix: str) -> Path:
        """One of its files: ``expected``, which the node reads, ``found``, which it writes, and its ``log``."""
        return Path(self.results) / "launcher" / "probes" / f"{self.name}.{suffix}"

    def prepare(self) -> None:
        """Write what is expected, and forget what an earlier job found."""
        self.file("expected").parent.mkdir(parents=True, exist_ok=True)
        self.file("found").unlink(missing_ok=True)
        write_atomically(self.file("expected"), json.dumps(asdict(self)).encode())

    def script(self, setup: Sequence[str]) -> str:
        """The script of the job. ``setup`` are the lines of shell with which every job begins."""
        expected, python = shlex.quote(str(self.file("expected"))), shlex.quote(self.python)
        return "\n".join(
            [
                "#!/bin/bash",
                # A network file system may show a new file a moment later.
                f"for wait in 1 2 3 4 5; do test -r {expected} && break; sleep 1; done",
                f"test -r {expected} || exit {NOT_SEEN}",
                f"exec >{shlex.quote(str(self.file('log')))} 2>&1",
                *setup,
                f"cd {shlex.quote(self.root)} && test -d benchmark || exit {NO_CHECKOUT}",
                f"test -x {python} || exit {NO_PYTHON}",
                f"exec {python} -m {MODULE} {expected}",
                "",
            ]
        )

    def message(self) -> str | None:
        """What is wrong with the node; "" if nothing is, None if the job has not ended."""
        try:
            return self.file("found").read_text()
        except OSError:
            return None

    def explain(self, code: int | None) -> str:
        """What the exit code of a job means that found nothing; None: the code is not known."""
        reasons = {
            NOT_SEEN: f"it does not see the results folder {self.results}. Set results=... to a folder that the nodes "
            "share with this machine.",
            NO_CHECKOUT: f"it does not see this checkout, {self.root}. Put it into a folder that the nodes share.",
            NO_PYTHON: f"it does not see {self.python}. Put .venv into a folder that the nodes share.",
            None: f"it ended without a result; see {self.file('log')}.",
        }
        return reasons.get(code, f"it ended with exit code {code}; see {self.file('log')}.")

    def check(self) -> str:
        """What is wrong with this node, or ""."""
        unlike = differences(self.environment)
        if unlike:
            return f"it has other versions: {unlike}. Make .venv anew for the nodes, or see launcher.modules."
        if sources() != self.sources:
            return f"its {self.root} is not the checkout of this machine: the files differ."
        if self.gpus:
            import torch

            if torch.cuda.device_count() < self.gpus:
                return f"torch finds {torch.cuda.device_count()} GPUs, launcher.gpus_per_job asks for {self.gpus}."
        return ""


def on_node(path: Path) -> int:
    """The job: check this node, write what was found, and return the exit code."""
    check = PreflightCheck(**json.loads(path.read_bytes()))
    message = check.check()
    print(message or "passed")
    write_atomically(check.file("found"), message.encode())
    return 1 if message else 0


if __name__ == "__main__":
    sys.exit(on_node(Path(sys.argv[1])))
