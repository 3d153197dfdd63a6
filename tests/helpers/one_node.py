"""A SLURM of one node."""

import os
import subprocess
from pathlib import Path

from desk import ROOT

SLURM = (
    "launcher=slurm",
    "launcher.partition=low",
    "launcher.poll=0.5",
    "launcher.time=30",
    "launcher.workers=2",
)
"""Above ten minutes: with fewer, submitit takes every SIGUSR2 for the end of the time."""

CLIENTS, ROUNDS = (2, 3), 12
"""Of the runs that are disturbed: one for each number of clients."""


def answer(*words: str) -> str:
    """What a command of SLURM prints; CalledProcessError if it fails."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


class Node:
    """The cluster, started and stopped by its script. Nothing here needs its accounting."""

    def script(self, word: str) -> None:
        """``start`` it, or those of its daemons that are missing; ``stop``: end all its jobs and daemons."""
        done = subprocess.run(
            [str(ROOT / "scripts" / "slurm-dev-cluster"), word],
            env=os.environ | {"SLURM_DEV_CPUS": "4", "SLURM_DEV_DB": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"the cluster does not {word}: {done.stderr}"

    def runs(self) -> bool:
        """Whether its controller runs. SLURM's own commands would look for it for ten seconds."""
        try:
            return Path(f"/proc/{self.daemon('slurmctld')}").exists()
        except FileNotFoundError:
            return False

    def daemon(self, name: str) -> int:
        """Process number of a daemon."""
        folder = Path(os.environ.get("SLURM_DEV_DIR", "/var/lib/slurm-dev"))
        return int((folder / f"{name}.pid").read_text())

    def jobs(self, folder: Path = Path("/")) -> list[str]:
        """Numbers of what waits or runs and was submitted below a folder; tasks of an array one by one."""
        lines = [line.split("|") for line in answer("squeue", "-h", "-r", "-o", "%i|%Z").splitlines()]
        return [job for job, where in lines if Path(where).is_relative_to(folder)]
