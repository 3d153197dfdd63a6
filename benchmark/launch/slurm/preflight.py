"""A short job before the first ones: does a node see the results folder, this checkout and the same packages?

What is submitted with it depends on it: nobody has to wait for it, and nothing starts that cannot work. What has passed
is noted in ``results/launcher/probes`` and not asked again until anything of it changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmark.errors import ConfigError, StorageError
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
"""What the bits of a run, or the way from a job to its runs, depend on."""

NOT_SEEN, NO_CHECKOUT, NO_PYTHON, UNLIKE, NOT_WRITTEN = 90, 91, 92, 93, 94
"""Exit codes of the job: where the folder is not seen, they are all that comes back."""


@cache
def environment() -> Mapping[str, str]:
    """Versions of Python and of the packages that matter, here; "" for one that is not there."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


@cache
def sources() -> str:
    """Digest of the program and its configuration."""
    digest = hashlib.sha256()
    for folder in ("benchmark", "conf", "datasets", "methods", "partitions"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def differences(expected: Mapping[str, str]) -> str:
    """What of `environment` is another one here: ``torch 2.12.0 (submitted with 2.15.0)``; "" if nothing is."""
    here = environment()
    return ", ".join(
        f"{name} {here.get(name) or 'missing'} (submitted with {value or 'none'})"
        for name, value in expected.items()
        if here.get(name) != value
    )


@dataclass(frozen=True)
class PreflightCheck:
    """What a node must have, and ``where`` it is looked for: the partition and whatever else chooses a node."""

    results: str
    where: str
    gpus: int
    environment: Mapping[str, str]
    sources: str
    root: str = str(ROOT)
    python: str = sys.executable

    @classmethod
    def of(cls, results: Path, where: str, gpus: int) -> PreflightCheck:
        """What is here."""
        return cls(str(results.resolve()), where, gpus, environment(), sources())

    @property
    def name(self) -> str:
        """The name of its job and of its notes."""
        return f"fedtables-probe-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]}"

    @property
    def folder(self) -> Path:
        """Its notes."""
        return Path(self.results) / "launcher" / "probes"

    @property
    def expected(self) -> Path:
        """What the job is to find; written by `prepare`, read on the node."""
        return self.folder / f"{self.name}.expected.json"

    @property
    def found(self) -> Path:
        """What the job has found; written on the node."""
        return self.folder / f"{self.name}.json"

    def prepare(self) -> None:
        """Note what is expected, and forget what was found."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.found.unlink(missing_ok=True)
        write_atomically(self.expected, json.dumps(asdict(self)).encode())

    def script(self, setup: Sequence[str]) -> str:
        """The job's script. ``setup`` are the lines of shell that every job begins with."""
        expected, python = shlex.quote(str(self.expected)), shlex.quote(self.python)
        return "\n".join(
            [
                "#!/bin/bash",
                # A network file system may show a new file a moment later.
                f"for wait in 1 2 3 4 5; do test -r {expected} && break; sleep 1; done",
                f"test -r {expected} || exit {NOT_SEEN}",
                f"exec >{shlex.quote(str(self.folder / self.name))}.log 2>&1",
                *setup,
                f"cd {shlex.quote(self.root)} && test -r benchmark/launch/slurm/preflight.py || exit {NO_CHECKOUT}",
                f"test -x {python} || exit {NO_PYTHON}",
                f"exec {python} -m benchmark.launch.slurm.preflight {expected}",
                "",
            ]
        )

    def passed(self) -> bool:
        """Whether the job has found all that is expected."""
        return self.message() == ""

    def message(self) -> str | None:
        """What the job has found amiss, "" if nothing; None as long as it has not said so."""
        try:
            content: str = json.loads(self.found.read_bytes())["message"]
        except (OSError, ValueError, KeyError):
            return None
        return content

    def explain(self, code: int | None) -> str:
        """What the exit code of a job means that has left no word; None: not known."""
        reasons = {
            NOT_SEEN: f"it does not see the results folder {self.results}. Set results=... to a folder that the nodes "
            "share with this machine.",
            NO_CHECKOUT: f"it does not see this checkout, {self.root}. Put it into a folder that the nodes share.",
            NO_PYTHON: f"it does not see {self.python}. Put .venv into a folder that the nodes share.",
        }
        log = self.folder / f"{self.name}.log"
        other = f"it ended with exit code {code}; what it said stands in {log}."
        return reasons.get(code or 0, other if code is not None else f"it ended without a word; see {log}.")

    def check(self) -> str:
        """On the node: what is amiss, or ""."""
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
    """The job: look, write what was found, and return the exit code."""
    probe = PreflightCheck(**json.loads(path.read_bytes()))
    message = probe.check()
    try:
        note = {"message": message, "host": socket.gethostname(), "job": os.environ.get("SLURM_JOB_ID", "")}
        write_atomically(probe.found, json.dumps(note).encode())
    except StorageError as error:
        print(error)
        return NOT_WRITTEN
    print(message or "passed")
    return UNLIKE if message else 0


def refused(message: str) -> ConfigError:
    """The error of a probe that did not pass."""
    return ConfigError(
        f"a node that was asked first cannot carry out the runs: {message} What was submitted with it was cancelled. "
        "(launcher.probe=false leaves this question out.)"
    )


if __name__ == "__main__":
    sys.exit(on_node(Path(sys.argv[1])))
