"""A real SLURM on this machine, and the same runs done without it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, desk
from filelock import FileLock
from one_node import CLIENTS, ROUNDS, Node
from processes import wait_until

obstacles: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud that nothing was tested."""
    for obstacle in obstacles:
        terminalreporter.write_sep("!", f"WARNING: NO TEST ON A REAL SLURM CLUSTER: {obstacle}", red=True)


def obstacle() -> str | None:
    """Why there can be no cluster here; the packages are installed where they are missing."""
    if os.geteuid() != 0:
        return "only root can install and start SLURM"
    if not Path("/etc/debian_version").exists():
        return "SLURM comes from Debian's packages, and this is not Debian"
    try:
        Node().script("start")
    except AssertionError:
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        programs = ("munged", "slurmctld", "slurmd", "sbatch")
        missing = [name for name in programs if not shutil.which(name, path=path)]
        if not missing:
            raise
        return f"the packages cannot be installed, there is no {', '.join(missing)}"
    return None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Node]:
    """The cluster: as it is where it runs, else started for these tests and stopped behind them."""
    node = Node()
    # There is one cluster on a machine, and these tests restart it.
    with FileLock(Path(tempfile.gettempdir()) / "fedtables-cluster-tests.lock"):
        there = node.runs()
        why = obstacle()
        if why is not None:
            obstacles.append(why)
            pytest.skip(why)
        yield node
        if not there:
            node.script("stop")


@pytest.fixture
def here(cluster: Node, tmp_path: Path) -> Iterator[Desk]:
    """An empty folder beside the cluster; no job of it goes on behind the test."""
    with desk(tmp_path) as it:
        yield it
    if cluster.runs():
        for job in cluster.jobs(tmp_path):
            subprocess.run(["scancel", job], check=False)
        wait_until(lambda: not cluster.jobs(tmp_path), "the end of the test's jobs")


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Where the runs were carried out without a cluster and in one piece."""
    with desk(tmp_path_factory.mktemp("local")) as it:
        it.prepare(CLIENTS, rounds=ROUNDS, how="hold", round=6)
        it.table("launcher=inline").wait()
        yield it
