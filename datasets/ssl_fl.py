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
from datasets.core.lists import read_text

LABELS, TEST_LIST = "labels.csv", "test.csv"


@dataclass(frozen=True)
class Lists:
    """Where the lists are, and the class of each image by its name, in the order of `labels.csv`."""

    place: Place
    labels: Mapping[str, int]

    def names(self, name: str) -> list[str]:
        """The images of the list `name` (relative to the folder), each once, in its order."""
        return list(dict.fromkeys(row[0] for row in _rows(self.place, name)))

    def files(self, part: str, lists: Mapping[str, Sequence[str]], sources: bool = False) -> Files:
        """All images of `lists` (names by list) in the folder `part`, in the order of `labels.csv`.

        With `sources`, the index of its list is an image's source.
        """
        folder = self.place.folder / part
        origin: dict[str, str] = {}
        for title, names in lists.items():
            twice = [name for name in names if name in origin]
            if twice:
                raise self.place.error(f"got names of {title} in another list as well: {first_names(twice)}")
            origin.update(dict.fromkeys(names, title))
        self.place.check_listed(origin, self.labels, f"no label in {LABELS} of")
        there = {name for name in origin if (folder / name).is_file()}
        self.place.check_listed(origin, there, f"no file in {part}/ of")
        names = [name for name in self.labels if name in origin]
        numbers = np.array([list(lists).index(origin[name]) for name in names], dtype=np.int64)
        return Files(
            [folder / name for name in names],
            np.array([self.labels[name] for name in names], dtype=np.int64),
            sources=numbers if sources else None,
        )


def find_lists(tree: Tree, root: Path, classes: Sequence[str], needed: Sequence[str]) -> Lists:
    """The lists under `root`; `needed` are the files and folders that must be there beside `labels.csv`."""
    needed = (LABELS, "train", "test", TEST_LIST, *needed)
    place = find(tree, root, list(dict.fromkeys(name.partition("/")[0] for name in needed)))
    path = place.require(needed)[LABELS]
    by_text = {text: k for k in range(len(classes)) for text in (f"{k}", f"{k}.0")}
    labels: dict[str, int] = {}
    for number, (name, *label) in enumerate(_rows(place, LABELS), 1):
        if (index := by_text.get("".join(label[:1]))) is None or labels.setdefault(name, index) != index:
            titles = ", ".join(f"{k}.0 ({title})" for k, title in enumerate(classes))
            expected = f"a name and a label in each row, one for each name: {titles}"
            raise place.error(f"got {','.join([name, *label])[:80]!r} in row {number}", path, expected)
    return Lists(place, labels)


def _rows(place: Place, name: str) -> list[list[str]]:
    """Rows of a list without header and quotes; blanks around values and empty rows dropped."""
    text = read_text(place, place.folder / name)
    rows = ([cell.strip() for cell in line.split(",")] for line in text.splitlines())
    return [row for row in rows if any(row)]
