"""The source files that this process executes, as they were when they were imported.

A file may be edited while a process runs, and a branch may be switched before it imports a module. So the files of the
checkout are read here once, when they are imported, and what is compiled is what was read.
"""

import ast
import importlib.util
import linecache
import sys
import traceback
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmark.paths import PACKAGES, ROOTS

_read: dict[str, bytes] = {}
"""Content of files by name."""

_importer: ContextVar[str] = ContextVar("importer", default="")
"""The module that is being executed."""

_loaded_by: dict[str, set[str]] = defaultdict(set)
"""Modules by the module whose execution loaded them."""


class Loader(SourceFileLoader):
    """Remembers the source of a module. Python's cache of compiled code is found by content instead of by time."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """What Python compares with its cache. A file that is edited twice within a second differs, too."""
        content = _read[name_of(Path(path))] = Path(path).read_bytes()
        return {"mtime": zlib.crc32(content), "size": len(content)}

    def get_data(self, path: str) -> bytes:
        """Content of a source file as `path_stats` has read it, or of another file."""
        content = _read.get(name_of(Path(path))) if path == self.path else None
        return super().get_data(path) if content is None else content

    def exec_module(self, module: ModuleType) -> None:
        """Execute a module, and note which other modules it loads."""
        _loaded_by[_importer.get()].add(module.__name__)
        before = _importer.set(module.__name__)
        try:
            super().exec_module(module)
        finally:
            _importer.reset(before)


class Finder(PathFinder):
    """Finds modules as Python does, and has those of repositories and checkout loaded by `Loader`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `PathFinder`."""
        spec = super().find_spec(fullname, path, target)
        if (
            spec is not None
            and type(spec.loader) is SourceFileLoader
            and spec.origin
            and is_ours(spec.origin)
        ):
            spec.loader = Loader(fullname, spec.origin)
        return spec


def install() -> None:
    """Have the modules of repositories and checkout loaded by `Loader` from now on, and find those of repositories."""
    sys.path += [str(root) for root in ROOTS if str(root) not in sys.path]
    sys.meta_path.insert(sys.meta_path.index(PathFinder), Finder)


def is_ours(path: str) -> bool:
    """Whether a file belongs to a repository or the checkout, and not to a package that is installed in it."""
    return root_of(Path(path)) is not None and "site-packages" not in path


@cache
def root_of(path: Path) -> Path | None:
    """The repository or checkout in which a file lies. One may lie in the other: then the inner one."""
    around = [root for root in ROOTS if path.is_relative_to(root)]
    return max(around, key=lambda root: len(root.parts), default=None)


@cache
def name_of(path: Path) -> str:
    """The file as digests name it: relative to the repository or checkout in which it lies."""
    root = root_of(path)
    return str(path) if root is None else path.relative_to(root).as_posix()


def path_of(name: str) -> Path:
    """The file of a name; one of the checkout if there is none."""
    return next((root / name for root in reversed(ROOTS) if (root / name).is_file()), ROOTS[-1] / name)


def place_of(error: BaseException) -> str:
    """Where an exception was raised in a user's method, partition or data set; empty if it was not in such a file.

    ``in Mine.loss, methods/mine.py:21: `return Loss(1 / 0)```: the hook that the program called, and the line in it or
    in what it calls.
    """
    frames = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_of_user(name_of(Path(frame.f_code.co_filename)))
    ]
    if not frames:
        return ""
    hook, (code, line) = frames[0][0].co_qualname, frames[-1]
    text = linecache.getline(code.co_filename, line).strip()
    return f"in {hook}, {name_of(Path(code.co_filename))}:{line}: `{text}`"


def _is_of_user(name: str) -> bool:
    package, _, file = name.partition("/")
    return package in PACKAGES and not file.startswith("core/")


def content(name: str) -> bytes | None:
    """What the process has executed of a file, else what it found there first; None if there is no such file."""
    if name not in _read:
        try:
            _read[name] = path_of(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    return _read[name]


def file_of(module: str) -> str:
    """The name of a module's file; empty if it belongs neither to a repository nor to the checkout."""
    origin = getattr(getattr(sys.modules.get(module), "__spec__", None), "origin", None)
    stem = module.replace(".", "/")
    names = [f"{stem}.py", f"{stem}/__init__.py"]
    places = [Path(origin)] if origin else [root / name for name in names for root in ROOTS]
    return next((name_of(path) for path in places if is_ours(str(path)) and path.is_file()), "")


def imports(module: str) -> set[str]:
    """The modules that a module imports, by statement, by name in a text, or by loading them when it was executed."""
    source = content(file_of(module)) or b""
    is_package = file_of(module).endswith("__init__.py")
    package = module if is_package else module.rpartition(".")[0]
    return {*_named(source, package), *_loaded_by[module]}


@cache
def _named(source: bytes, package: str) -> frozenset[str]:
    """Modules that import statements and texts like ``"methods.helper"`` name."""

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                join = base if base.endswith(".") else f"{base}."
                yield from (base, *(join + alias.name for alias in node.names))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                yield from [node.value] if node.value.replace(".", "").isidentifier() else []

    modules = (name if name[0] != "." else _absolute(name, package) for name in names())
    return frozenset(module.rstrip(".") for module in modules)


def _absolute(name: str, package: str) -> str:
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:  # a text that only looks like a relative name, or an import that fails
        return ""
