"""What a message about wrong raw files has to hold, whatever the data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from datasets.base import DataError
from datasets.prepare import load

PARTS = ("looked at: ", "expected: ", "found: ", "cause: ", "get it: ", "counts: ")


def fails(name: str, root: Path, cache: Path, options: Mapping[str, Any], page: str) -> str:
    """The message that loading ends in. It has its six parts, each filled in, and nothing is prepared."""
    with pytest.raises(DataError) as caught:
        load(name, options, root=root, cache=cache)
    message = str(caught.value)
    lines = message.splitlines()[1:]
    assert [line.strip().split(":")[0] + ":" for line in lines] == [part.strip() for part in PARTS], message
    parts = {
        part.strip(): line.strip().removeprefix(part.strip()).strip()
        for part, line in zip(PARTS, lines, strict=True)
    }
    assert all(parts.values()), message
    assert Path(parts["looked at:"]).is_absolute() and str(root) in parts["looked at:"]
    assert page in parts["get it:"] and any(digit.isdigit() for digit in parts["counts:"])
    assert not any(cache.glob(f"{name}-*"))
    return message
