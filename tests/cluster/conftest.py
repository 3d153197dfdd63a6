"""A real SLURM on this machine, and the same runs done without it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from one_node import Desk, Node, desk


@pytest.fixture(scope="session")
def cluster() -> Iterator[Node]:
    """The cluster: as it is where it runs, else started for these tests and stopped behind them."""
    assert os.geteuid() == 0, "only root can install and start SLURM"
    assert Path("/etc/debian_version").exists(), "SLURM comes from Debian's packages, and this is not Debian"
    node = Node()
    # There is one cluster on a machine, and these tests restart it.
    with FileLock(Path(tempfile.gettempdir()) / "fedtables-cluster-tests.lock"):
        there = node.runs()
        node.script("start")
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
