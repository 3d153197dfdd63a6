"""Source files with another content, as the next command would find them."""

from collections.abc import Callable, Iterator

import pytest

from benchmark import digests, sources

Edit = Callable[[str, str, str], None]


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """``edited(path, old, new)`` changes a text in a source file, as far as digests of code are concerned."""

    def edit_source(path: str, old: str, new: str) -> None:
        before = sources.content(path)
        assert before is not None and old.encode() in before
        monkeypatch.setitem(sources._read, path, before.replace(old.encode(), new.encode(), 1))
        digests.engine.cache_clear()

    yield edit_source
    monkeypatch.undo()
    digests.engine.cache_clear()
