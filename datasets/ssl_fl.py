"""The layout of Retina and COVID-FL: `train/`, `test/`, lists of names, and `labels.csv` for all images.

Yan et al., "Label-efficient self-supervised federated learning", 2023, prepared both copies. Lists have no header.
`labels.csv` has rows `name,label` with labels such as "1.0"; other lists have the name in their first column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import Files
from datasets.core.folders import Place, Tree, find, first_names
from datasets.core.lists import check_listed, read_rows

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
        origin: dict[str, str] = {}
        for title, names in lists.items():
            twice = [name for name in names if name in origin]
            if twice:
                raise self.place.error(
                    f"{len(twice):,} of {len(names):,} names in {title} are in {origin[twice[0]]} as well: "
                    f"{first_names(twice)}."
                )
            origin.update(dict.fromkeys(names, title))
        check_listed(self.place, origin, self.labels, f"have no label in {LABELS}")
        there = {name for name in origin if (folder / name).is_file()}
        check_listed(self.place, origin, there, f"are not in {part}/")
        names = [name for name in self.labels if name in origin]
        number = {title: index for index, title in enumerate(lists)}
        return Files(
            [folder / name for name in names],
            np.array([self.labels[name] for name in names], dtype=np.int64),
            sources=np.array([number[origin[name]] for name in names], dtype=np.int64) if sources else None,
        )


def find_lists(tree: Tree, root: Path, classes: Sequence[str], needed: Sequence[str]) -> Lists:
    """The lists under `root`; `needed` are the files and folders that must be there beside `labels.csv`."""
    needed = (LABELS, *needed)
    place = find(tree, root, list(dict.fromkeys(item.partition("/")[0] for item in needed)))
    missing = [item for item in needed if not (place.folder / item).exists()]
    if missing:
        raise place.error(
            f"{len(missing)} of {len(needed)} files and folders are missing: {first_names(missing)}."
        )
    known = {text: index for index in range(len(classes)) for text in (f"{index}", f"{index}.0")}
    labels: dict[str, int] = {}
    path = place.folder / LABELS
    for number, row in enumerate(read_rows(place, path), 1):
        label = known.get(row[1]) if len(row) > 1 else None
        if label is None or labels.setdefault(row[0], label) != label:
            wanted = ", ".join(f"{index}.0 ({title})" for index, title in enumerate(classes))
            problem = f"has in row {number} {','.join(row)[:80]!r}"
            raise place.bad_file(
                path, problem, f"a name and a label in each row, one for each name: {wanted}"
            )
    return Lists(place, labels)
