"""A short job before the first ones: does a node see the results folder, this checkout and the same packages?

Jobs that are submitted with it depend on it, so that nothing starts that cannot work. A check that was passed is noted
in ``<results>/launcher/probes`` and not repeated until something of it changes.
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
"""Packages on which the bits of a run, or the way from a job to its runs, depend."""

MODULE = "benchmark.launch.slurm.preflight"
"""This module, as the job starts it."""

NOT_SEEN, NO_CHECKOUT, NO_PYTHON, UNLIKE, NOT_WRITTEN = 90, 91, 92, 93, 94
"""Exit codes of the job. If it does not see the results folder, they are all that it can say."""


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
    def of(cls, results: Path, where: str, gpus: int) -> PreflightCheck:
        """The check that expects what this machine has."""
        return cls(str(results.resolve()), where, gpus, environment(), sources())

    @property
    def name(self) -> str:
        """Name of its job and of its files."""
        return f"fedtables-probe-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]}"

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return Path(self.results) / "launcher" / "probes"

    @property
    def expected(self) -> Path:
        """File with what is expected. `prepare` writes it, the node reads it."""
        return self.folder / f"{self.name}.expected.json"

    @property
    def found(self) -> Path:
        """File with what was found. The node writes it."""
        return self.folder / f"{self.name}.json"

    def prepare(self) -> None:
        """Write what is expected, and remove what was found before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.found.unlink(missing_ok=True)
        write_atomically(self.expected, json.dumps(asdict(self)).encode())

    def script(self, setup: Sequence[str]) -> str:
        """The script of the job. ``setup`` are the lines of shell with which every job begins."""
        expected, python = shlex.quote(str(self.expected)), shlex.quote(self.python)
        return "\n".join(
            [
                "#!/bin/bash",
                # A network file system may show a new file a moment later.
                f"for wait in 1 2 3 4 5; do test -r {expected} && break; sleep 1; done",
                f"test -r {expected} || exit {NOT_SEEN}",
                f"exec >{shlex.quote(str(self.folder / self.name))}.log 2>&1",
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
            content: str = json.loads(self.found.read_bytes())["message"]
        except (OSError, ValueError, KeyError):
            return None
        return content

    def explain(self, code: int | None) -> str:
        """What the exit code of a job means that wrote no file; None: the code is not known."""
        reasons = {
            NOT_SEEN: f"it does not see the results folder {self.results}. Set results=... to a folder that the nodes "
            "share with this machine.",
            NO_CHECKOUT: f"it does not see this checkout, {self.root}. Put it into a folder that the nodes share.",
            NO_PYTHON: f"it does not see {self.python}. Put .venv into a folder that the nodes share.",
        }
        log = self.folder / f"{self.name}.log"
        other = f"it ended with exit code {code}; see {log}."
        return reasons.get(code or 0, other if code is not None else f"it ended without a result; see {log}.")

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
    try:
        note = {"message": message, "host": socket.gethostname(), "job": os.environ.get("SLURM_JOB_ID", "")}
        write_atomically(check.found, json.dumps(note).encode())
    except StorageError as error:
        print(error)
        return NOT_WRITTEN
    print(message or "passed")
    return UNLIKE if message else 0


def refused(message: str) -> ConfigError:
    """The error for a check that failed."""
    return ConfigError(
        f"a node cannot carry out the runs: {message} What was submitted was cancelled. (launcher.probe=false leaves "
        "this check out.)"
    )


if __name__ == "__main__":
    sys.exit(on_node(Path(sys.argv[1])))
