"""Source files with another content, as the next command would find them."""

from collections.abc import Callable, Iterator

import pytest

from benchmark.runs import code

Edit = Callable[[str, str, str], None]


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """``edited(path, old, new)`` changes a text in a source file, as far as digests of code are concerned."""
    cached = (code.digest, code.engine, code._imports)

    def forget() -> None:
        for function in cached:
            function.cache_clear()

    def edit_source(path: str, old: str, new: str) -> None:
        before = code.sources()[path]
        assert old.encode() in before
        changed = {**code.sources(), path: before.replace(old.encode(), new.encode(), 1)}
        monkeypatch.setattr(code, "sources", lambda: changed)
        forget()

    yield edit_source
    monkeypatch.undo()
    forget()
