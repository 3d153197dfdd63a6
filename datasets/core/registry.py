"""Names of the data sets: `@dataset("name", options=Model)` on a builder, found by importing every file here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import validate
from benchmark.registry import Registry
from datasets.core.base import DataError, Facts, Options, RawDataset
from datasets.core.checks import check_complete, check_published
from datasets.core.folders import UNREADABLE, Place, Tree
from datasets.core.images import ListedDataset

Builder = Callable[[Any, Path], RawDataset | ListedDataset]


@dataclass(frozen=True)
class RegisteredDataset:
    """A registered data set.

    Attributes:
        name: Name in configurations and on the command line.
        builder: `(options, root) -> RawDataset or ListedDataset`.
        options: Pydantic model of the options, a subclass of `datasets.core.base.Options`.
        tree: Where its raw files are, who owns them, and their licence.
        facts: Options -> what is known of the set before its files are there; None: nothing.
    """

    name: str
    builder: Builder
    options: type[Options]
    tree: Tree
    facts: Callable[[Any], Facts] | None = None

    @property
    def licence(self) -> str:
        """Licence and page of the owner; "" if it is not known."""
        return f"{self.tree.licence}, {self.tree.page}" if self.tree.page else self.tree.licence

    def build(self, options: Options, root: Path) -> RawDataset | ListedDataset:
        """What the builder makes of the raw files below ``root``. `DataError` if they are missing or wrong."""
        try:
            built = self.builder(options, root)
            if isinstance(built, ListedDataset):
                check_complete(self.tree, root, built)
            if getattr(options, "strict", False):
                check_published(self.tree, root, built)
        except OSError as error:
            path = Path(error.filename or root)
            problem = f"{path.name} cannot be read ({error.strerror or error})."
            raise Place(self.tree, root, path).error(problem, UNREADABLE) from error
        return built


ENTRIES: Registry[RegisteredDataset] = Registry("data set", "datasets", DataError)


def dataset(
    name: str,
    *,
    options: type[Options],
    tree: Tree | None = None,
    facts: Callable[[Any], Facts] | None = None,
) -> Callable[[Builder], Builder]:
    """Register the decorated builder; arguments as `RegisteredDataset`. Without a ``tree`` it reads no files."""

    def register(builder: Builder) -> Builder:
        entry = RegisteredDataset(name, builder, options, tree or Tree(title=name), facts)
        ENTRIES.add(name, entry, builder.__module__)
        return builder

    return register


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(ENTRIES.names())


def get(name: str) -> RegisteredDataset:
    """The entry registered as `name`.

    Raises:
        UserError: No such data set, two of this name, or a file that cannot be imported.
    """
    return ENTRIES.get("dataset.name", name, "in conf/dataset/*.yaml")


def describe(name: str) -> str:
    """One line on the data set `name`: the first of its builder's docstring. Errors as `get`."""
    return (inspect.getdoc(get(name).builder) or "").partition("\n")[0]


def facts(name: str, options: Mapping[str, Any] | None = None) -> Facts | None:
    """What is known of the data set `name` before its files are there, or None. Errors as `get` and `parse`."""
    entry = get(name)
    return None if entry.facts is None else entry.facts(parse(entry, options))


def parse(entry: RegisteredDataset, options: Mapping[str, Any] | None) -> Options:
    """Validated options of a data set; None means all defaults."""
    where = " Set it under `options:` in conf/dataset/*.yaml or with dataset.options.KEY=VALUE."
    prefix = f"options of data set {entry.name!r}: "
    return validate(entry.options, options or {}, prefix, after=where, kind=DataError)


def with_options(
    node: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
    """A data set's configuration with other options, and those that differ: key -> (value before, new value).

    A value that the data set has already is left out, so that the run stays the same run.

    Args:
        node: The ``name`` of the data set and its ``options``. An option that is not among them has its default.
        given: Options on top of these.

    Raises:
        DataError: As `get` and `parse`.
    """
    entry, before = get(node.get("name", "")), node.get("options") or {}
    new = parse(entry, {**before, **given}).model_dump(mode="json")
    old = entry.options.model_construct(**before).model_dump(mode="json", warnings=False)
    changed = {key: (old.get(key), new[key]) for key in given if key not in old or old[key] != new[key]}
    return {**node, "options": {**before, **{key: new[key] for key in changed}}}, changed
