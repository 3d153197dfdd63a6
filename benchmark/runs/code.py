"""Digests of the code that a run executes: of its method's own modules, and of the engine.

Comments, docstrings and layout do not count. All files are read once, before a process imports a method, so that an
edit while it runs cannot give a run the digest of code that it did not execute.
"""

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from benchmark.paths import ROOT
from benchmark.runs.status import Status

OWN = ("methods/", "partitions/")
"""Modules of single algorithms. A run counts as its own those that it uses, and what they import of these folders."""

ENGINE = (
    "benchmark/config/schedules.py",
    "benchmark/engine/",
    "benchmark/models/",
    "benchmark/runs/build.py",
    "benchmark/runs/data.py",
    "benchmark/transforms/",
    "methods/core/",
    "partitions/core/",
)
"""What every run executes."""


@cache
def sources() -> Mapping[str, bytes]:
    """Every Python file of the checkout that a run may execute, by its path."""
    folders = dict.fromkeys(place.partition("/")[0] for place in (*OWN, *ENGINE))
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}


@cache
def digest(path: str) -> str:
    """Digest of a file's syntax tree; empty if there is no such file. A file with a syntax error counts as it is."""
    source = sources().get(path)
    if source is None:
        return ""
    try:
        content = repr(_plain(ast.parse(source))).encode()
    except SyntaxError:
        content = source
    return hashlib.sha256(content).hexdigest()[:16]


def _plain(node: Any) -> Any:
    """A syntax tree as nested lists, the same in all versions of Python that have its syntax."""
    if isinstance(node, list):
        return [_plain(item) for item in node if not _is_text(item)]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: _plain(value) for name, value in ast.iter_fields(node) if name != "type_comment"}
    return [
        type(node).__name__,
        *((name, value) for name, value in fields.items() if value not in (None, [])),
    ]


def _is_text(node: Any) -> bool:
    """Whether a node is a text that stands alone, like a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@cache
def engine() -> str:
    """Digest of all that every run executes."""
    parts = [f"{path} {digest(path)}" for path in sources() if path.startswith(ENGINE)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def own(modules: Iterable[str]) -> dict[str, str]:
    """Digests of an algorithm's own files by path: those of ``modules``, and those that they import."""
    found: dict[str, str] = {}
    waiting = [path for name in modules if (path := _path(name))]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = digest(path)
            waiting += _imports(path)
    return dict(sorted(found.items()))


def _path(module: str) -> str:
    """The file of a module if it is some algorithm's own, else an empty string."""
    stem = module.replace(".", "/")
    for path in (f"{stem}.py", f"{stem}/__init__.py"):
        if path in sources() and path.startswith(OWN) and not path.startswith(ENGINE):
            return path
    return ""


@cache
def _imports(path: str) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(sources()[path])):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [found for name in names if (found := _path(name))]


def changed(status: Status) -> list[str]:
    """The files of its method whose code is not the one that the run executed."""
    return [path for path, executed in status.code.items() if digest(path) != executed]
