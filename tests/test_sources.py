"""What counts as the code of a run: what was executed, by whatever import."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark import digests, sources

FILES = {
    "toy_methods/__init__.py": "",
    "toy_methods/alg.py": (
        "import importlib\nfrom .near import near\nfrom outside import far\n"
        "late = importlib.import_module('toy_methods.late')\nnamed = importlib.import_module('.named', __package__)\n"
        "for name in ('toy_methods.b' + 'uilt',):\n    importlib.import_module(name)\n"
        "class Rule:\n    files = ('table.csv',)\n"
    ),
    **{f"toy_methods/{name}.py": f"{name} = 1\n" for name in ("near", "late", "named", "built", "unused")},
    "outside.py": "from deeper import far\n",
    "deeper.py": "far = 1\n",
    "toy_methods/table.csv": "1,2\n",
}

Checkout = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    """A checkout of its own; ``write(name, text)`` puts a file into it."""

    def write_file(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    for name, text in FILES.items():
        write_file(name, text)
    monkeypatch.setattr(sources, "ROOTS", [tmp_path])
    monkeypatch.setattr(sources, "_read", {})
    monkeypatch.syspath_prepend(tmp_path)
    sources.name_of.cache_clear()
    yield write_file
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("toy_methods", "outside", "deeper")
    ]:
        del sys.modules[name]
    sources.name_of.cache_clear()


def test_whatever_a_rule_imports_or_reads_is_its_own(write: Checkout) -> None:
    module = importlib.import_module("toy_methods.alg")
    own = digests.own(module.Rule)
    assert set(own) == {
        name for name in FILES if name not in ("toy_methods/__init__.py", "toy_methods/unused.py")
    }
    assert all(own.values()) and digests.changed(own) == []


@pytest.mark.parametrize("name", ["near", "late", "named", "built", "table.csv"])
def test_the_next_process_sees_a_change_that_this_one_did_not_execute(write: Checkout, name: str) -> None:
    own = digests.own(importlib.import_module("toy_methods.alg").Rule)
    name = f"toy_methods/{name}" if "." in name else f"toy_methods/{name}.py"
    write(name, "other = 2\n")
    assert digests.changed(own) == []
    sources._read.clear()  # as in the next process
    assert digests.changed(own) == [name]


def test_a_file_that_is_edited_before_it_is_imported(write: Checkout) -> None:
    """The digest is of what was executed, not of what lay there when the process looked first."""
    before = digests.of_code("deeper.py")
    write("deeper.py", "far = 2\n")
    assert importlib.import_module("deeper").far == 2
    assert digests.of_code("deeper.py") != before


def test_two_edits_in_one_second(write: Checkout, tmp_path: Path) -> None:
    """Python's cache compares whole seconds and the size of a file."""
    path = tmp_path / "deeper.py"
    for value in (1, 2, 3):
        write("deeper.py", f"far = {value}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        importlib.invalidate_caches()
        assert importlib.import_module("deeper").far == value
        del sys.modules["deeper"]


def test_what_differs_from_the_commit(write: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's digest of a file is SHA-1 of ``blob 2\\0`` and the content ``a\\n``; a new file is not in the commit."""
    write("same.py", "a\n")
    monkeypatch.setattr(
        digests,
        "_committed",
        lambda root: ("c", {"same.py": "78981922613b2afb6025042ff6bd878ac1994e85", "deeper.py": "0" * 40}),
    )
    assert digests.not_committed(["same.py", "deeper.py", "outside.py"]) == ["deeper.py", "outside.py"]


HARMLESS = {
    "benchmark/config/files.py", "benchmark/config/merge.py", "benchmark/config/schema.py",
    "benchmark/runs/__init__.py",
    "benchmark/runs/checkpoint.py", "benchmark/runs/files.py", "benchmark/runs/index.py", "benchmark/runs/lease.py",
    "benchmark/runs/origin.py", "benchmark/runs/status.py", "benchmark/runs/store.py", "benchmark/runs/writer.py",
    "datasets/__init__.py", "methods/__init__.py", "benchmark/config/__init__.py",
}  # fmt: skip
"""What a run executes and no number depends on: the configuration has a hash, files and locks have digests."""


def test_the_engine_is_all_that_a_run_executes() -> None:
    """By the imports of the module that carries a run out."""
    importlib.import_module("benchmark.runs.execute")
    reached = digests._reached(["benchmark.runs.execute"])
    missing = {name for name in reached if not digests.is_engine(name)} - HARMLESS
    assert missing == set()
    assert {"benchmark/runs/execute.py", "datasets/core/prepare.py", "partitions/core/base.py"} <= reached
