"""Runs that ended, and runs that were stopped."""

from pathlib import Path

import pytest
from tiny_runs import STATEFUL, STATELESS, carry_out, interrupted, tiny

from benchmark.config.schema import RunConfig


@pytest.fixture
def ended(tmp_path: Path) -> RunConfig:
    config = tiny(tmp_path / "results", STATELESS)
    assert carry_out(config).state == "done"
    return config


@pytest.fixture
def calm(tmp_path: Path) -> RunConfig:
    """The run of `halfway`, never stopped."""
    config = tiny(tmp_path / "calm", STATEFUL)
    assert carry_out(config).state == "done"
    return config


@pytest.fixture
def halfway(tmp_path: Path) -> RunConfig:
    """A run of three rounds, stopped after the first."""
    return interrupted(tmp_path / "results")
