"""Names that the files of a folder register: rules of methods, partition schemes, data sets, networks, metrics.

A file that cannot be imported, and a name that two files register, concern only those who ask for that name.
"""

import importlib
import pkgutil
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from benchmark.errors import UserError, ended, wrong
from benchmark.paths import ROOT, unset

Item = TypeVar("Item")


class BrokenFile(UserError):
    """What was asked for is, or may be, in a file that cannot be imported, or is in two; the message names them."""


@cache
def module_files(package: str) -> dict[str, list[str]]:
    """The files of every module of a package by its name: one, or two where a repository has a module of ours again."""
    files: dict[str, list[str]] = {}
    roots, subpackages = [Path(folder) for folder in importlib.import_module(package).__path__], [package]
    # It grows: a subpackage of one folder may have modules in all, with __init__.py or not.
    for parent in subpackages:
        inside = parent.removeprefix(package).removeprefix(".").replace(".", "/")
        for root in roots:
            for module in pkgutil.iter_modules([str(root / inside)], f"{parent}."):
                relative = module.name.removeprefix(f"{package}.").replace(".", "/")
                path = root / (f"{relative}/__init__.py" if module.ispkg else f"{relative}.py")
                if module.ispkg and module.name in subpackages:
                    continue  # the first one is imported
                if module.ispkg:
                    subpackages.append(module.name)
                shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
                files[module.name] = [*files.get(module.name, []), shown]
    return files


@cache
def broken_files(package: str) -> dict[str, str]:
    """Import every module of a package: what is wrong with those that fail or are there twice, by name."""
    broken = {}
    for name, files in module_files(package).items():
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (whatever a contributor's code raises)
            broken[name] = f"{files[0]}: cannot be imported: {ended(_cause(error, files[0]))}"
        if len(files) > 1:
            broken[name] = f"{' and '.join(files)} have one name. Rename one of them."
    return broken


def _cause(error: Exception, file: str) -> str:
    """The error in one line, with the line of the file where it happened."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, UserError):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(file)]
    where = f" (line {lines[-1]})" if lines else ""  # a syntax error says its line itself
    return f"{type(error).__name__}: {text}{where}"


class Registry(Generic[Item]):
    """What the modules of a package register, by name."""

    def __init__(self, what: str, package: str, kind: type[UserError]) -> None:
        """``what`` is registered, for messages; ``kind`` is raised for an unknown name."""
        self.what, self.package, self.kind = what, package, kind
        self.found: dict[str, list[tuple[str, Item]]] = {}

    def add(self, name: str, item: Item, module: str) -> None:
        """Register an item of a module. A second one of the same name is an error for those who ask for it."""
        self.found[name] = [*self.found.get(name, []), (module, item)]

    def names(self) -> list[str]:
        broken_files(self.package)
        return sorted(self.found)

    def get(self, key: str, name: str, where: str = "", beside: Sequence[str] = ()) -> Item:
        """The item called ``name``.

        Args:
            key: The setting that names it, for the message.
            name: Its name.
            where: Where to set it, as for `wrong`.
            beside: Other names that the setting may have, for the message.

        Raises:
            BrokenFile: It is in two files or in one that cannot be imported, or unknown while there is such a file.
            UserError: It is unknown.
        """
        known, broken = self.names(), broken_files(self.package)
        if name not in known:
            expected = f"one of {', '.join([*beside, *known])}{unset()}"
            text = wrong(key, name, expected, known=[*beside, *known], where=where)
            if broken:
                own = [said for module, said in broken.items() if module.rpartition(".")[2] == name]
                raise BrokenFile(" ".join(own or [*broken.values(), text]))
            raise self.kind(text)
        modules = [module for module, _ in self.found[name]]
        if len(modules) > 1:
            places = module_files(self.package)
            files = " and ".join(places.get(module, [module])[0] for module in modules)
            raise BrokenFile(f"{self.what} {name!r} is defined twice: in {files}. Rename one of them.")
        if modules[0] in broken:
            raise BrokenFile(broken[modules[0]])
        return self.found[name][0][1]
