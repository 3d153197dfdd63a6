"""What code makes a number: digests of source files, and the snapshot of all code that processes run from.

A digest is that of the syntax tree, so comments, docstrings and layout do not count. A snapshot is a copy of the
checkout and of the user's repositories, made once for each content, so that an edit changes nothing that runs or waits.
"""

import ast
import contextlib
import hashlib
import importlib.util
import json
import linecache
import shutil
import subprocess
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmark.paths import PACKAGES, PARTS, ROOT, ROOTS
from benchmark.system import replacing

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

DIGITS = 16
"""Digits of the digest of a source file, and of a snapshot."""

KEPT_RESULTS = ("results/published/", "results/tuned/", "results/weights/")
"""What a snapshot has of the results folder of a checkout."""

LEFT_OUT = ("results/", "docs/", "tests/", ".")
"""What it has not, beside these."""

NOTE = "note.json"
"""File of a snapshot that says where it comes from."""


def digest(value: Any) -> str:
    """SHA-256 of a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# Digests ---------------------------------------------------------------------------------------------------------


def name_of(path: Path) -> str:
    """The file as digests name it: relative to the repository or checkout in which it lies, the inner one of two."""
    names = [path.relative_to(root).as_posix() for root in ROOTS if path.is_relative_to(root)]
    return min(names, key=len, default=str(path))


def path_of(name: str, place: Path | None = None) -> Path:
    """The file of a name; one of the checkout if there is none. ``place``: a snapshot to look in."""
    roots = ROOTS if place is None else roots_of(place)
    return next((root / name for root in reversed(roots) if (root / name).is_file()), ROOT / name)


@cache
def file_digest(name: str, place: Path | None = None) -> str:
    """Digest of a source file, or of a data file that code reads, as this process found it first; empty without it.

    A name that ends with a slash is a folder: all its modules. ``place``: a snapshot that has the file.
    """
    if name.endswith("/"):
        return digest(
            {name_of(path): file_digest(name_of(path)) for path in sorted((ROOT / name).rglob("*.py"))}
        )[:DIGITS]
    try:
        source = path_of(name, place).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    content = source
    if name.endswith(".py"):
        with contextlib.suppress(SyntaxError):  # then the file counts as it is
            content = repr(_plain(ast.parse(source))).encode()
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


@cache
def engine_digest() -> str:
    """Digest of all that every run executes."""
    return digest({name: file_digest(name) for name in ENGINE})[:DIGITS]


def own_digests(*parts: type, modules: Iterable[str] = ()) -> dict[str, str]:
    """Digests by name of a run's own files: modules, what they import below `PACKAGES`, and data that they read.

    ``parts`` are rules and partition schemes, whose ``files`` are the data. The engine is left out.
    """
    names = {name for module in (*modules, *(part.__module__ for part in parts)) for name in _reached(module)}
    for part in parts:
        path = _file_of(part.__module__)
        names |= {name_of(path.parent / file) for file in getattr(part, "files", ()) if path is not None}
    return {name: file_digest(name) for name in sorted(names)}


def builder_digests(module: str) -> dict[str, str]:
    """Digests by name of what a data set's builder is made of."""
    return {**own_digests(modules=[module]), "datasets/core/": file_digest("datasets/core/")}


@cache
def _reached(module: str) -> frozenset[str]:
    """Names of the files below `PACKAGES` that a module and its import statements are made of."""
    names: set[str] = set()
    waiting = [module]
    while waiting:
        module = waiting.pop()
        path = _file_of(module)
        if path is not None and name_of(path) not in names and not name_of(path).startswith(ENGINE):
            names.add(name_of(path))
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            with contextlib.suppress(SyntaxError):
                waiting += _imports(ast.parse(path.read_bytes()), package)
    return frozenset(names)


def _file_of(module: str) -> Path | None:
    """The file of a module below `PACKAGES`; None for all other modules."""
    for folder, package in PACKAGES.items():
        if f"{module}.".startswith(f"{package}."):
            stem = module.replace(package, folder, 1).replace(".", "/")
            places = [root / name for name in (f"{stem}.py", f"{stem}/__init__.py") for root in ROOTS]
            return next((path for path in places if path.is_file()), None)
    return None


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """The modules that import statements name, and the names that may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


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


# Snapshots -------------------------------------------------------------------------------------------------------


def made_by() -> dict[str, Any]:
    """Where this process's code comes from: ``code`` (its snapshot, or empty), ``commit`` and ``dirty``.

    The commits of the user's repositories are by folder in ``repositories``.
    """
    note = ROOT.parent / NOTE
    if note.is_file():
        about: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        return {"code": ROOT.parent.name, **{key: about[key] for key in ("commit", "dirty", "repositories")}}
    return {"code": "", **_state()}


@cache
def _state() -> dict[str, Any]:
    others = {str(root): _git(root, "rev-parse", "HEAD") for root in ROOTS if root != ROOT}
    dirty = any(_git(root, "status", "--porcelain", "--", "benchmark", "conf", *PACKAGES) for root in ROOTS)
    return {"commit": _git(ROOT, "rev-parse", "HEAD"), "dirty": dirty, "repositories": others}


def _git(root: Path, *words: str) -> str:
    """What git prints about a folder; empty without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout.strip("\n") if done.returncode == 0 else ""


def snapshot(folder: Path) -> Path:
    """The snapshot of the code as it is now, below ``folder``; it is made if it is not there.

    It has a folder for each of `ROOTS`, numbered in their order, and `NOTE`.
    """
    if (ROOT.parent / NOTE).is_file():  # this process runs from a snapshot, perhaps of another results folder
        place = folder / ROOT.parent.name
        if not place.is_dir():
            with replacing(place) as beside:
                shutil.copytree(ROOT.parent, beside)
        return place
    files = {f"{number}/{name}": root / name for number, root in enumerate(ROOTS) for name in _files(root)}
    content = {name: path.read_bytes() for name, path in files.items()}
    name = digest({name: hashlib.sha256(source).hexdigest() for name, source in content.items()})[:DIGITS]
    place = folder / name
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(place) as beside:
                _write(beside, content)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    return place


def _write(folder: Path, content: Mapping[str, bytes]) -> None:
    """Write the files of a snapshot, and the note about them."""
    for name, source in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(source)
    about = _state() | {
        "diff": "\n".join(filter(None, (_git(root, "diff", "HEAD") for root in ROOTS))),
        "untracked": [_git(root, "ls-files", "-o", "--exclude-standard") for root in ROOTS],
    }
    (folder / NOTE).write_text(json.dumps(about, indent=1), encoding="utf-8")


def roots_of(place: Path) -> list[Path]:
    """The folders of a snapshot in the order of `ROOTS`."""
    return [place / str(number) for number in range(len(list(place.glob("[0-9]*"))))]


def _files(root: Path) -> list[str]:
    """What git tracks and does not ignore below a root, else all files of code and configuration, as names."""
    listed = _git(root, "ls-files", "-z", "-co", "--exclude-standard").split("\0")
    if not any(listed):
        kinds = ("*.py", "*.yaml", "*.csv", "*.json", "*.jinja", "*.js", "*.css", "*.pth")
        parts = (*PACKAGES, "benchmark", "conf", "results")
        paths = [path for part in parts for kind in kinds for path in (root / part).rglob(kind)]
        listed = [path.relative_to(root).as_posix() for path in paths]
    kept = [name for name in listed if not name.startswith(LEFT_OUT) or name.startswith(KEPT_RESULTS)]
    if root != ROOT:  # anything may lie in a user's repository, raw data for example
        kept = [name for name in kept if name.startswith((*PARTS, *KEPT_RESULTS))]
    return sorted(name for name in kept if name and (root / name).is_file())
