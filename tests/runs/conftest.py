"""Runs that ended, and runs that were stopped."""

from pathlib import Path

import pytest
from tiny_runs import STATEFUL, STATELESS, interrupted, tiny

from benchmark.config.schema import RunConfig
from benchmark.runs.execute import execute


@pytest.fixture
def ended(tmp_path: Path) -> RunConfig:
    config = tiny(tmp_path / "results", STATELESS)
    assert execute(config)[0] == "done"
    return config


@pytest.fixture
def calm(tmp_path: Path) -> RunConfig:
    """The run of `halfway`, never stopped."""
    config = tiny(tmp_path / "calm", STATEFUL)
    assert execute(config)[0] == "done"
    return config


@pytest.fixture
def halfway(tmp_path: Path) -> RunConfig:
    """A run of three rounds, stopped after the first."""
    return interrupted(tmp_path / "results")
