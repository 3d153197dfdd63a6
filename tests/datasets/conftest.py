"""What the tests of the data sets share: small raw trees, and the message of a data set that is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pooch
import pytest
import raw_trees

from datasets.core.base import DataError
from datasets.core.prepare import locate, prepare
from datasets.core.registry import get

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
    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **_: no_network)


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
    """Prepares a data set that cannot be prepared: its message of one line, and nothing is left.

    A cut-down copy, `strict: false`, if the options do not say otherwise.
    """

    def prepare_and_fail(name: str, root: Path, **options: Any) -> str:
        cache = tmp_path / "cache of a refused set"
        loose = {"strict": False} if "strict" in get(name).options.model_fields else {}
        with pytest.raises(DataError) as caught:
            prepare(locate(name, loose | options, root, cache))
        message = str(caught.value)
        assert "\n" not in message and ": got " in message and "; expected " in message, message
        assert not [path for path in cache.iterdir() if path.is_dir()]
        return message

    return prepare_and_fail
