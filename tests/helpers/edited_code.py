"""Source files with another content, as the next command would find them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark import code

Edit = Callable[[str, str, str], None]


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Edit]:
    """``edited(path, old, new)`` changes a text in a source file, as far as digests of code are concerned."""
    path_of, copies = code.path_of, tmp_path / "edited"
    # Prepared anew, data would be so for tests beside this one too.
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        code,
        "path_of",
        lambda name, *place: copies / name if (copies / name).is_file() else path_of(name, *place),
    )

    def edit_source(path: str, old: str, new: str) -> None:
        before = code.path_of(path).read_text()
        assert old in before
        (copies / path).parent.mkdir(parents=True, exist_ok=True)
        (copies / path).write_text(before.replace(old, new, 1))
        _forget()

    yield edit_source
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    """As in a new process."""
    code.file_digest.cache_clear()
    code.engine_digest.cache_clear()
