"""The layout of Retina and COVID-FL: `train/`, `test/`, lists of names, and `labels.csv` for all images.

Yan et al., "Label-efficient self-supervised federated learning", 2023, prepared both copies. Lists have no header.
`labels.csv` has rows `name,label` with labels such as "1.0"; other lists have the name in their first column.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import Files
from datasets.core.folders import Place, Tree, find, first_names
from datasets.core.lists import EDITED, check_listed, read_rows

LABELS, TEST_LIST = "labels.csv", "test.csv"


@dataclass(frozen=True)
class Lists:
    """Where the lists are, and the class of each image by its name, in the order of `labels.csv`."""

    place: Place
    labels: Mapping[str, int]

    def names(self, name: str) -> list[str]:
        """The images of the list `name` (relative to the folder), each once, in its order."""
        return list(dict.fromkeys(row[0] for row in read_rows(self.place, self.place.folder / name)))

    def check_there(self, lists: Collection[str], cause: str) -> None:
        """Refuse a copy that lacks one of these lists."""
        missing = [name for name in lists if not (self.place.folder / name).is_file()]
        if missing:
            raise self.place.error(
                f"{len(missing)} of {len(lists)} lists of clients are missing: {', '.join(missing)}.",
                otherwise=cause,
                counts=f"{len(lists)} lists expected, {len(lists) - len(missing)} found",
            )

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
                    f"{len(twice):,} of {len(names):,} names in {title} are in {origin[twice[0]]} as well.",
                    looked_at=self.place.folder / title,
                    found=first_names(twice),
                    cause="a list was copied over another, or lists of two splits are mixed; get the lists anew",
                    counts=f"0 images on two lists expected, {len(twice):,} found",
                )
            origin.update(dict.fromkeys(names, title))
        cause = f"a {LABELS} of another version or cut off, or a header line in the list"
        check_listed(
            self.place,
            origin,
            self.labels,
            f"have no label in {LABELS}",
            looked_at=self.place.folder / LABELS,
            cause=cause,
        )
        there = {name for name in origin if (folder / name).is_file()}
        cause = (
            f"an interrupted download or unpacking, a folder more inside {part}/, or lists of another version"
        )
        check_listed(self.place, origin, there, f"are not in {part}/", looked_at=folder, cause=cause)
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
    place = find(tree, root, [item.partition("/")[0] for item in needed])
    missing = [item for item in needed if not (place.folder / item).exists()]
    if missing:
        raise place.error(
            f"no {' and no '.join(f'`{item}`' for item in missing)} in {place.folder.absolute()}.",
            counts=f"{len(needed)} files and folders expected, {len(needed) - len(missing)} found",
        )
    known = {text: index for index in range(len(classes)) for text in (f"{index}", f"{index}.0")}
    labels: dict[str, int] = {}
    for number, row in enumerate(read_rows(place, place.folder / LABELS), 1):
        label = known.get(row[1]) if len(row) > 1 else None
        if label is None or labels.setdefault(row[0], label) != label:
            wanted = ", ".join(f"{index}.0 ({title})" for index, title in enumerate(classes))
            raise place.error(
                f"row {number} of {LABELS} has none of the labels {wanted}, or another one than further up.",
                looked_at=place.folder / LABELS,
                found=",".join(row)[:80],
                cause=f"a header line, or {EDITED}",
                counts=f"{len(classes)} classes expected; {number - 1:,} good rows before this one",
            )
    return Lists(place, labels)
