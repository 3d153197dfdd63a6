"""What the tests of the data sets share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets.base import DataError
from datasets.prepare import prepare

sys.path.insert(0, str(Path(__file__).parent))

SIX_PARTS = ("looked at: /", "expected:  ", "found:     ", "cause:     ", "get it:    ", "counts:    ")


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Prepares a data set that cannot be prepared: its one message, which has the six parts, and nothing is left."""

    def prepare_and_fail(name: str, root: Path, options: dict[str, Any] | None = None) -> str:
        cache = tmp_path / "cache of a refused set"
        with pytest.raises(DataError) as caught:
            prepare(name, {"strict": False, **(options or {})}, root, cache)
        message = str(caught.value)
        lines = message.splitlines()
        assert len(lines) == 1 + len(SIX_PARTS), message
        for line, part in zip(lines[1:], SIX_PARTS, strict=True):
            assert line.startswith(f"  {part}") and line.strip() != part.strip(), line
        assert "expected" in lines[-1], "the counts that are expected, and those that were found"
        assert not any(path.is_dir() for path in cache.iterdir()), "something was decoded"
        return message

    return prepare_and_fail
