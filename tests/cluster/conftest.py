"""A real SLURM on this machine, and the same runs done without it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from one_node import Desk, Node, desk

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd", "mariadbd")
"""What the cluster consists of; the script installs the packages that have them."""

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
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    try:
        Node().script("start")
    except AssertionError:
        missing = [name for name in PROGRAMS if not shutil.which(name, path=path)]
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
    """An empty folder beside the cluster."""
    with desk(tmp_path, cluster) as it:
        yield it


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Where the whole quick table was made without a cluster."""
    with desk(tmp_path_factory.mktemp("local")) as it:
        it.table().wait()
        yield it


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Where the long runs were done without a cluster and in one piece."""
    with desk(tmp_path_factory.mktemp("undisturbed")) as it:
        it.long().wait()
        yield it
