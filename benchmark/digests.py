"""Digests of code, files and plain values: the one notion that runs, partitions and prepared data share."""

import ast
import contextlib
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmark import sources
from benchmark.paths import ROOT

ENGINE = (
    "benchmark/config/schedules.py",
    "benchmark/heterogeneity.py",
    "benchmark/engine/",
    "benchmark/models/",
    "benchmark/runs/build.py",
    "benchmark/runs/data.py",
    "benchmark/runs/execute.py",
    "benchmark/transforms/",
    "datasets/core/",
    "methods/core/",
    "partitions/core/",
)
"""What every run executes."""

SUPPORT = (
    "benchmark/__init__.py",
    "benchmark/digests.py",
    "benchmark/errors.py",
    "benchmark/paths.py",
    "benchmark/registry.py",
    "benchmark/sources.py",
    "benchmark/system.py",
)
"""What algorithms may import without a change of their numbers: messages, names, files."""

DIGITS = 16
"""Digits of the digest of a source file."""


def of(value: Any) -> str:
    """SHA-256 of a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def of_file(path: Path) -> str:
    """SHA-256 of a file's content; empty if there is none."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


# Code ------------------------------------------------------------------------------------------------------------


def of_code(name: str) -> str:
    """Digest of a source file, or of a data file that code reads; empty if there is no such file.

    Of Python it is that of the syntax tree: comments, docstrings and layout do not count.
    """
    source = sources.content(name)
    return "" if source is None else _of_source(source, name.endswith(".py"))


@cache
def _of_source(source: bytes, is_python: bool) -> str:
    content = source
    with contextlib.suppress(SyntaxError):  # then the file counts as it is
        content = repr(_plain(ast.parse(source))).encode() if is_python else source
    return hashlib.sha256(content).hexdigest()[:DIGITS]


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


def engine_files(*places: str) -> list[str]:
    """The files of all that every run executes, or of some of its places."""
    roots = [ROOT / place for place in places or ENGINE]
    paths = [path for root in roots for path in ([root] if root.suffix else root.rglob("*.py"))]
    return sorted(sources.name_of(path) for path in paths)


@cache
def engine(*places: str) -> str:
    """Digest of all that every run executes, or of some of its places."""
    return of({name: of_code(name) for name in engine_files(*places)})[:DIGITS]


def is_engine(name: str) -> bool:
    """Whether a file belongs to what every run executes, or to what may be imported without a change of numbers."""
    return name.startswith((*ENGINE, *SUPPORT))


def own(*parts: type) -> dict[str, str]:
    """Digests by name of the files of algorithms: of their modules, of what these import, and of data that they read.

    The engine is left out. ``parts`` are rules and partition schemes; their ``files`` are the data.
    """
    names = _reached(part.__module__ for part in parts)
    kept = [name for name in names if not is_engine(name)]
    data = [
        str(Path(sources.file_of(part.__module__)).parent / file)
        for part in parts
        for file in getattr(part, "files", ())
    ]
    return {name: of_code(name) for name in sorted([*kept, *data])}


def builder(module: str) -> dict[str, str]:
    """Digests by name of the files that a data set's builder is made of."""
    return {name: of_code(name) for name in sorted(_reached([module])) if name not in SUPPORT}


def _reached(modules: Iterable[str]) -> set[str]:
    """Files of the checkout that modules and their imports are made of."""
    names: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        name = sources.file_of(module)
        if name and name not in names:
            names.add(name)
            waiting += () if name.startswith(SUPPORT) else sources.imports(module)
    return names


def changed(executed: Mapping[str, str]) -> list[str]:
    """Those of the files that have another digest now."""
    return [name for name, digest in executed.items() if of_code(name) != digest]


@cache
def _committed(root: Path) -> tuple[str, dict[str, str]]:
    """(commit of a checkout, git's digest of each file in it); nothing without git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    try:
        entries = (line.partition("\t") for line in git("ls-tree", "-rz", "HEAD").split("\0") if line)
        return git("rev-parse", "--verify", "--quiet", "HEAD").strip(), {
            name: about.split()[2] for about, _, name in entries
        }
    except OSError:
        return "", {}


def commit(root: Path = ROOT) -> str:
    """The commit of the checkout, or of a repository; empty without git."""
    return _committed(root)[0]


def not_committed(names: Iterable[str]) -> list[str]:
    """Those of the files that differ from their content in the commit of their repository, or are not in it."""
    return [name for name in names if not _is_committed(name)]


def _is_committed(name: str) -> bool:
    committed = _committed(sources.root_of(sources.path_of(name)) or ROOT)[1]
    return _git_digest(sources.content(name) or b"", committed) == committed.get(name)


def commits(names: Iterable[str]) -> dict[str, str]:
    """The repositories of the user in which the files lie -> their commits."""
    roots = {sources.root_of(sources.path_of(name)) for name in names} - {None, ROOT}
    return {str(root): commit(root) for root in sorted(root for root in roots if root)}


def _git_digest(content: bytes, committed: Mapping[str, str]) -> str:
    longest = max(map(len, committed.values()), default=0)
    algorithm = hashlib.sha256 if longest == 64 else hashlib.sha1
    return algorithm(f"blob {len(content)}\0".encode() + content).hexdigest()
