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

from datasets.core.base import DataError
from datasets.core.download import NOT_THERE, known_cause, some
from datasets.core.folders import ImageTree, Place, find, read_rows
from datasets.core.images import Files

NOT_UNPACKED = dict.fromkeys(
    ("*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.rar", "*.7z"), "an archive that is not unpacked"
)
"""Hints of a tree."""
LABELS, TEST_LIST = "labels.csv", "test.csv"


@dataclass(frozen=True)
class Lists:
    """A found tree.

    Attributes:
        place: Where it is.
        classes: Names by index.
        labels: Class by name of an image, in the order of `labels.csv`.
    """

    place: Place
    classes: tuple[str, ...]
    labels: Mapping[str, int]

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.place.folder

    def names(self, name: str) -> list[str]:
        """The images that the list `name` (relative to the folder) holds, each once, in its order.

        Raises:
            DataError: The list is missing, unreadable or empty.
        """
        return list(dict.fromkeys(row[0] for row in read_rows(self.place, self.folder / name)))

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
        return self.place.error(
            problem,
            looked_at=self.folder / name,
            expected=f"{self.place.relative(name)} of the prepared copy",
            cause=cause,
            counts=counts,
            found=found,
        )

    def hint(self, otherwise: str) -> str:
        """What the names in the folder tell of a mistake, else `otherwise`."""
        return known_cause(self.place.tree, self.folder, self.folder) or otherwise

    def _twice(self, title: str, other: str, twice: list[str], listed: int) -> DataError:
        return self.error(
            f"{len(twice):,} of {listed:,} names in {title} are in {other} as well.",
            title,
            "a list was copied over another, or lists of two splits are mixed; get the lists anew",
            f"0 images on two lists expected, {len(twice):,} found",
            some(twice),
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
                f"{len(self.labels):,} labels, none for {some(absent[first])}",
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
            )


def _by_list(lists: Mapping[str, Sequence[str]], absent: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{Path(title).stem} {len(names):,} and {len(names) - len(absent[title]):,}"
        for title, names in lists.items()
    )


def find_lists(tree: ImageTree, root: Path, classes: tuple[str, ...], needed: Sequence[str]) -> Lists:
    """The tree under `root` with its labels read.

    Args:
        tree: What it should be.
        root: The data root.
        classes: Names by index.
        needed: Files and folders that must be there beside `labels.csv`.

    Raises:
        DataError: It is not there, or `labels.csv` does not hold labels of these classes.
        OSError: A folder cannot be read.
    """
    needed = (LABELS, *needed)
    place = find(tree, root, [item.partition("/")[0] for item in needed])
    missing = [item for item in needed if not (place.folder / item).exists()]
    if missing:
        raise _incomplete(place, missing, len(needed))
    lists = Lists(place, classes, {})
    labels: dict[str, int] = {}
    for number, row in enumerate(read_rows(place, place.folder / LABELS), 1):
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
    return Lists(place, classes, labels)


def _incomplete(place: Place, missing: Sequence[str], needed: int) -> DataError:
    """The error where not all of the files and folders are there."""
    inside = (f"*/{name}/{LABELS}" for top in place.tree.folders for name in (top, f"{top}/{top}"))
    deeper = [path.parent for pattern in inside for path in sorted(place.root.glob(pattern))]
    return place.error(
        f"no {' and no '.join(f'`{item}`' for item in missing)} in {place.folder.absolute()}.",
        expected=f"{', '.join(map(place.relative, missing))} under the data root",
        otherwise=f"{LABELS} lies in {deeper[0]}: make that the data root" if deeper else NOT_THERE,
        counts=f"{needed} files and folders expected, {needed - len(missing)} found",
    )


def _label(text: str, classes: int) -> int | None:
    """The class that a label such as "1.0" names, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in range(classes) else None
