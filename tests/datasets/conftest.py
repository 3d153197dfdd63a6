"""What the tests of the data sets share: small raw trees, and the message of a data set that is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import raw_trees

from datasets.core.base import DataError
from datasets.core.prepare import locate, prepare
from datasets.core.registry import get

PARTS = ("looked at: ", "expected:  ", "found:     ", "cause:     ", "get it:    ")
SMALL: dict[str, dict[str, Any]] = {
    "acevedo": {"each": 3},
    "matek": {"each": 2},
    "bodzas": {"each": 2},
    "ham10000": {"each": 4},
    "mnist": {"train": 4},
    "pacs": {"each": 5},
    "retina": {"train": 10, "size": 16},
    "spawrious": {"each": 10},
    "waterbirds": {"train": 3},
}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """And images are decoded in this process: to start others takes longer for so few."""
    monkeypatch.setenv("FEDTABLES_OFFLINE", "1")
    monkeypatch.setenv("FEDTABLES_WORKERS", "1")


@pytest.fixture
def raw(tmp_path: Path) -> Callable[..., Path]:
    """Writes the raw tree of some data sets below a new data root, and returns the root."""

    def write(*names: str, **sizes: Any) -> Path:
        root = tmp_path / "data"
        root.mkdir(exist_ok=True)
        for name in names:
            getattr(raw_trees, name)(root, **(SMALL.get(name, {}) | sizes))
        return root

    return write


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Prepares a data set that cannot be prepared: its one message, which has the five parts, and nothing is left.

    A cut-down copy, `strict: false`, if the options do not say otherwise. If the images themselves are bad
    (`decoding`), what was decoded before stays, to continue from.
    """

    def prepare_and_fail(
        name: str, root: Path, options: dict[str, Any] | None = None, decoding: bool = False
    ) -> str:
        cache = tmp_path / "cache of a refused set"
        loose = {"strict": False} if "strict" in get(name).options.model_fields else {}
        with pytest.raises(DataError) as caught:
            prepare(locate(name, loose | (options or {}), root, cache))
        message = str(caught.value)
        lines = message.splitlines()[1:]
        assert [line[2:13] for line in lines] == list(PARTS), message
        parts = [line[13:].strip() for line in lines]
        assert all(parts), message
        assert Path(parts[0]).is_absolute() and str(root) in parts[0]
        left = [path.name for path in cache.iterdir() if path.is_dir()]
        assert len(left) == decoding, "something was decoded"
        assert all(folder.startswith(f".{name}-") and folder.endswith(".partial") for folder in left)
        return message

    return prepare_and_fail
