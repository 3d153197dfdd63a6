"""The layout of Retina and COVID-FL: `train/`, `test/`, lists of names, and `labels.csv` for all images.

Yan et al., "Label-efficient self-supervised federated learning", 2023, prepared both copies. Lists have no header.
`labels.csv` has rows `name,label` with labels such as "1.0"; other lists have the name in their first column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import DataError, Files
from datasets.core.folders import NOT_THERE, Place, Tree, find, first_names
from datasets.core.lists import read_rows

LABELS, TEST_LIST = "labels.csv", "test.csv"


@dataclass(frozen=True)
class Lists:
    """Where the lists are, and the class of each image by its name, in the order of `labels.csv`."""

    place: Place
    labels: Mapping[str, int]

    def names(self, name: str) -> list[str]:
        """The images of the list `name` (relative to the folder), each once, in its order."""
        return list(dict.fromkeys(row[0] for row in read_rows(self.place, self.place.folder / name)))

    def files(self, part: str, lists: Mapping[str, Sequence[str]], sources: bool = False) -> Files:
        """All images of `lists` (names by list) in the folder `part`, in the order of `labels.csv`.

        With `sources`, the index of its list is an image's source.
        """
        folder = self.place.folder / part
        origin: dict[str, int] = {}
        for index, (title, names) in enumerate(lists.items()):
            twice = [name for name in names if name in origin]
            if twice:
                other = list(lists)[origin[twice[0]]]
                raise self.place.error(
                    f"{len(twice):,} of {len(names):,} names in {title} are in {other} as well.",
                    looked_at=self.place.folder / title,
                    found=first_names(twice),
                    cause="a list was copied over another, or lists of two splits are mixed; get the lists anew",
                    counts=f"0 images on two lists expected, {len(twice):,} found",
                )
            origin.update(dict.fromkeys(names, index))
        self._check(
            lists,
            lambda name: name in self.labels,
            f"have no label in {LABELS}",
            LABELS,
            f"a {LABELS} of another version or cut off, or a header line in the list",
        )
        self._check(
            lists,
            lambda name: (folder / name).is_file(),
            f"are missing in {part}/",
            part,
            f"an interrupted download or unpacking, a folder more inside {part}/, or lists of another version",
        )
        names = [name for name in self.labels if name in origin]
        return Files(
            [folder / name for name in names],
            np.array([self.labels[name] for name in names], dtype=np.int64),
            sources=np.array([origin[name] for name in names], dtype=np.int64) if sources else None,
        )

    def _check(
        self,
        lists: Mapping[str, Sequence[str]],
        good: Callable[[str], bool],
        problem: str,
        where: str,
        cause: str,
    ) -> None:
        bad = {title: [name for name in names if not good(name)] for title, names in lists.items()}
        if not any(bad.values()):
            return
        first = next(title for title, names in bad.items() if names)
        by_list = "; ".join(
            f"{Path(title).stem} {len(names):,} and {len(names) - len(bad[title]):,}"
            for title, names in lists.items()
        )
        raise self.place.error(
            f"{len(bad[first]):,} of {len(lists[first]):,} names in {first} {problem}: {first_names(bad[first])}.",
            looked_at=self.place.folder / where,
            cause=cause,
            counts=f"names by list, expected and found: {by_list}",
        )


def find_lists(tree: Tree, root: Path, classes: tuple[str, ...], needed: Sequence[str]) -> Lists:
    """The lists under `root`; `needed` are the files and folders that must be there beside `labels.csv`."""
    needed = (LABELS, *needed)
    place = find(tree, root, [item.partition("/")[0] for item in needed])
    missing = [item for item in needed if not (place.folder / item).exists()]
    if missing:
        raise _incomplete(place, missing, len(needed))
    labels: dict[str, int] = {}
    for number, row in enumerate(read_rows(place, place.folder / LABELS), 1):
        label = _label(row[1] if len(row) > 1 else "", len(classes))
        if label is None or labels.get(row[0], label) != label:
            known = ", ".join(f"{index}.0 ({name})" for index, name in enumerate(classes))
            problem = (
                "has another label further up" if label is not None else f"has none of the labels {known}"
            )
            raise place.error(
                f"row {number} of {LABELS} {problem}.",
                looked_at=place.folder / LABELS,
                found=",".join(row)[:80],
                cause="a header line, another data set's labels, or a file that was edited",
                counts=f"{len(classes)} classes expected; {number - 1:,} good rows before this one",
            )
        labels[row[0]] = label
    return Lists(place, labels)


def _incomplete(place: Place, missing: Sequence[str], needed: int) -> DataError:
    inside = (f"*/{name}/{LABELS}" for top in place.tree.folders for name in (top, f"{top}/{top}"))
    deeper = [path.parent for pattern in inside for path in sorted(place.root.glob(pattern))]
    return place.error(
        f"no {' and no '.join(f'`{item}`' for item in missing)} in {place.folder.absolute()}.",
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
