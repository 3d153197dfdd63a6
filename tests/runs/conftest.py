"""Lets the tests of this folder, and the workers that they start, import the work functions of the launcher's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; skips where this process may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux to mount a small disk")
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs the command mount")
    if done.returncode:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
