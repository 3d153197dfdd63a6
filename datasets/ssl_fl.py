"""The layout that Retina and COVID-FL share: `train/`, `test/`, lists of names, and `labels.csv` for all of them.

It comes from Yan et al., "Label-efficient self-supervised federated learning", 2023, whose prepared copies FedLD uses.
No list has a header. `labels.csv` has `name,label`, the label as a float ("1.0"); of all other lists only the text
before the first comma counts. A name may hold folders and blanks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.base import DataError
from datasets.images import Files
from datasets.trees_lists import Tree, first_five, first_names, read_rows, relative, tree_error, tree_folder

LABELS, TEST_LIST = "labels.csv", "test.csv"
STRICT = "a cut-down copy needs `options: {strict: false}` in conf/dataset/*.yaml"


@dataclass(frozen=True)
class Lists:
    """A found tree.

    Attributes:
        tree: What it should be.
        folder: Where it is.
        classes: Names by index.
        labels: Class by name of an image, in the order of `labels.csv`.
    """

    tree: Tree
    folder: Path
    classes: tuple[str, ...]
    labels: Mapping[str, int]

    def names(self, name: str) -> list[str]:
        """The images that the list `name` (relative to the folder) holds, each once, in its order.

        Raises:
            DataError: The list is missing, unreadable or empty.
        """
        return list(dict.fromkeys(row[0] for row in read_rows(self.tree, self.folder / name)))

    def files(self, part: str, lists: Mapping[str, Sequence[str]], sources: bool = False) -> Files:
        """All images of some lists as one split, in the order of `labels.csv`.

        Args:
            part: Folder of the images, `train` or `test`.
            lists: Names of images by the list they come from.
            sources: Whether the place of its list among ``lists`` is an image's source.

        Raises:
            DataError: An image has no label or no file, or is on two lists.
        """
        origin: dict[str, int] = {}
        for index, (title, names) in enumerate(lists.items()):
            twice = [name for name in names if name in origin]
            if twice:
                raise self._twice(title, list(lists)[origin[twice[0]]], twice, len(names))
            origin.update(dict.fromkeys(names, index))
        self._all_labelled(part, lists)
        self._all_there(part, lists)
        names = [name for name in self.labels if name in origin]
        return Files(
            [self.folder / part / name for name in names],
            np.array([self.labels[name] for name in names], dtype=np.int64),
            sources=np.array([origin[name] for name in names], dtype=np.int64) if sources else None,
        )

    def error(self, problem: str, name: str, cause: str, counts: str, found: str = "") -> DataError:
        """The error about the file or folder `name` of this tree."""
        place = self.folder / name
        expected = f"{relative(self.tree, name)} of the prepared copy"
        return tree_error(
            self.tree, problem, looked_at=place, expected=expected, cause=cause, counts=counts, found=found
        )

    def _twice(self, title: str, other: str, twice: list[str], listed: int) -> DataError:
        return self.error(
            f"{len(twice):,} of {listed:,} names in {title} are in {other} as well.",
            title,
            "a list was copied over another, or lists of two splits are mixed; get the lists anew",
            f"0 images on two lists expected, {len(twice):,} found",
            first_five(twice),
        )

    def _all_labelled(self, part: str, lists: Mapping[str, Sequence[str]]) -> None:
        absent = {
            title: [name for name in names if name not in self.labels] for title, names in lists.items()
        }
        if any(absent.values()):
            first = next(title for title, names in absent.items() if names)
            raise self.error(
                f"{len(absent[first]):,} of {len(lists[first]):,} names in {first} have no label in {LABELS}.",
                LABELS,
                f"a {LABELS} of another version or cut off, or a header line in {first}",
                f"labels of {part} by list, expected and found: {_by_list(lists, absent)}",
                f"{len(self.labels):,} labels, none for {first_five(absent[first])}",
            )

    def _all_there(self, part: str, lists: Mapping[str, Sequence[str]]) -> None:
        absent = {
            title: [name for name in names if not (self.folder / part / name).is_file()]
            for title, names in lists.items()
        }
        if any(absent.values()):
            first = next(title for title, names in absent.items() if names)
            raise self.error(
                f"{len(absent[first]):,} of {len(lists[first]):,} names in {first} are missing in {part}/, "
                f"the first of them {absent[first][0]}.",
                part,
                "a download or an unpacking that broke off, a folder more inside "
                f"{part}/, or lists of another version",
                f"images of {part} by list, expected and found: {_by_list(lists, absent)}",
                first_names(self.folder / part),
            )


def _by_list(lists: Mapping[str, Sequence[str]], absent: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{Path(title).stem} {len(names):,} and {len(names) - len(absent[title]):,}"
        for title, names in lists.items()
    )


def find_lists(tree: Tree, root: Path, classes: tuple[str, ...], needed: Sequence[str]) -> Lists:
    """The tree under `root` with its labels read.

    Args:
        tree: What it should be.
        root: The data root.
        classes: Names by index.
        needed: Files and folders that must be there beside `labels.csv`.

    Raises:
        DataError: It is not there, or `labels.csv` does not hold labels of these classes.
    """
    folder = tree_folder(tree, root, (LABELS, *needed))
    lists = Lists(tree, folder, classes, {})
    labels: dict[str, int] = {}
    for number, row in enumerate(read_rows(tree, folder / LABELS), 1):
        label = _label(row[1] if len(row) > 1 else "", len(classes))
        if label is None or labels.get(row[0], label) != label:
            known = ", ".join(f"{index}.0 ({name})" for index, name in enumerate(classes))
            wrong = "has another label further up" if label is not None else f"has none of the labels {known}"
            raise lists.error(
                f"row {number} of {LABELS} {wrong}.",
                LABELS,
                "a header line, another data set's labels, or a file that was edited",
                f"{len(classes)} classes expected; {number - 1:,} good rows before this one",
                ",".join(row)[:80],
            )
        labels[row[0]] = label
    return Lists(tree, folder, classes, labels)


def _label(text: str, classes: int) -> int | None:
    """The class that a label such as "1.0" names, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in range(classes) else None
