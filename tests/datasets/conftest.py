"""What the tests of the data sets share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets.core.base import DataError
from datasets.core.prepare import prepare

SIX_PARTS = ("looked at: ", "expected:  ", "found:     ", "cause:     ", "get it:    ", "counts:    ")


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Prepares a data set that cannot be prepared: its one message, which has the six parts, and nothing is left.

    Without options it is a cut-down copy, `strict: false`; `page` is what stands under "get it". Where the files
    themselves are bad (`decoding`), what was decoded before stays, to go on from.
    """

    def prepare_and_fail(
        name: str,
        root: Path,
        options: dict[str, Any] | None = None,
        page: str = "",
        decoding: bool = False,
    ) -> str:
        cache = tmp_path / "cache of a refused set"
        with pytest.raises(DataError) as caught:
            prepare(name, {"strict": False} if options is None else options, root, cache)
        message = str(caught.value)
        lines = message.splitlines()[1:]
        assert [line[2:13] for line in lines] == list(SIX_PARTS), message
        looked_at, *_, get, counts = parts = [line[13:].strip() for line in lines]
        assert all(parts), message
        assert Path(looked_at).is_absolute() and str(root) in looked_at
        assert page in get
        assert "expected" in counts and any(digit.isdigit() for digit in counts), "and those that were found"
        left = [path.name for path in cache.iterdir() if path.is_dir()]
        assert len(left) == decoding, "something was decoded"
        assert all(folder.startswith(f".{name}-") and folder.endswith(".partial") for folder in left)
        return message

    return prepare_and_fail
