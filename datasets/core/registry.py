"""Names of the data sets: `@dataset("name", options=Model)` on a builder, found by importing every file here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import validate
from benchmark.registry import Registry
from datasets.core.base import DataError, Facts, Options, RawDataset
from datasets.core.folders import STRICT, Place, Tree
from datasets.core.images import ListedDataset, open_rgb

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

    def build(self, options: Options, root: Path) -> RawDataset | ListedDataset:
        """What the builder makes of the raw files below ``root``. `DataError` if they are missing or wrong."""
        try:
            built = self.builder(options, root)
            if getattr(options, "strict", False):
                check_published(self.tree, root, built)
        except OSError as error:
            path = Path(error.filename or root)
            raise Place(self.tree, root, path).error(f"got no access ({error.strerror or error})") from error
        return built


def check_published(tree: Tree, root: Path, built: RawDataset | ListedDataset) -> None:
    """Refuse other numbers of images than the published ones, and a resized copy."""
    place = Place(tree, root, root)
    expected = {" ".join(filter(None, cell)): number for *cell, number in built.expected}
    place.check_counts(
        {" ".join(filter(None, cell)): built.count(*cell) for *cell, _ in built.expected}, expected
    )
    if not isinstance(built, ListedDataset):
        return
    for source, side in tree.sides.items():
        path = built.train.paths[int(built.rows("train", group=source).argmax())]
        if min(size := open_rgb(path).size) < side:
            got = f"got {size[0]} x {size[1]} pixels"
            raise place.error(
                got, path, f"at least {side} on the shorter side, as in the originals; {STRICT}"
            )


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
    """The entry registered as `name`. `UserError`: not one, two, or in a file that cannot be imported."""
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

    A value that the data set has already is left out, so that the run stays the same run. ``node`` has the ``name`` of
    the data set and its ``options``; one that is not among them has its default. Errors as `get` and `parse`.
    """
    entry, before = get(node.get("name", "")), node.get("options") or {}
    new = parse(entry, {**before, **given}).model_dump(mode="json")
    old = entry.options.model_construct(**before).model_dump(mode="json", warnings=False)
    changed = {key: (old.get(key), new[key]) for key in given if key not in old or old[key] != new[key]}
    return {**node, "options": {**before, **{key: new[key] for key in changed}}}, changed
