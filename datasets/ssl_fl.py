"""The layout that Retina and COVID-FL share: `train/`, `test/`, lists of names, and `labels.csv` for all of them.

It comes from Yan et al., "Label-efficient self-supervised federated learning", 2023, whose prepared copies FedLD uses.
No list has a header. `labels.csv` has `name,label`, the label as a float ("1.0"); of all other lists only the text
before the first comma counts. A name may hold folders and blanks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import DataError
from datasets.core.folders import NOT_THERE, Place, Tree, find, first_names
from datasets.core.images import Files
from datasets.core.lists import read_rows

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
        labels: Class by name of an image, in the order of `labels.csv`.
    """

    place: Place
    labels: Mapping[str, int]

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.place.folder

    def names(self, name: str) -> list[str]:
        """The images that the list `name` (relative to the folder) holds, each once, in its order."""
        return list(dict.fromkeys(row[0] for row in read_rows(self.place, self.folder / name)))

    def files(self, part: str, lists: Mapping[str, Sequence[str]], sources: bool = False) -> Files:
        """All images of some lists as one split, in the order of `labels.csv`.

        Args:
            part: Folder of the images, `train` or `test`.
            lists: Names of images by the list they come from.
            sources: Whether the index of its list among ``lists`` is an image's source.
        """
        origin: dict[str, int] = {}
        for index, (title, names) in enumerate(lists.items()):
            twice = [name for name in names if name in origin]
            if twice:
                other = list(lists)[origin[twice[0]]]
                raise self.error(
                    f"{len(twice):,} of {len(names):,} names in {title} are in {other} as well.",
                    title,
                    "a list was copied over another, or lists of two splits are mixed; get the lists anew",
                    f"0 images on two lists expected, {len(twice):,} found",
                    first_names(twice),
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
            lambda name: (self.folder / part / name).is_file(),
            f"are missing in {part}/",
            part,
            f"an interrupted download or unpacking, a folder more inside {part}/, or lists of another version",
        )
        names = [name for name in self.labels if name in origin]
        return Files(
            [self.folder / part / name for name in names],
            np.array([self.labels[name] for name in names], dtype=np.int64),
            sources=np.array([origin[name] for name in names], dtype=np.int64) if sources else None,
        )

    def error(
        self, problem: str, name: str, cause: str, counts: str, found: str = "", otherwise: str = NOT_THERE
    ) -> DataError:
        """The error about the file or folder `name` of this tree."""
        return self.place.error(
            problem,
            looked_at=self.folder / name,
            expected=f"{self.place.tree.folders[0]}/{name} of the prepared copy",
            cause=cause,
            counts=counts,
            found=found,
            otherwise=otherwise,
        )

    def _check(
        self,
        lists: Mapping[str, Sequence[str]],
        good: Callable[[str], bool],
        problem: str,
        where: str,
        cause: str,
    ) -> None:
        """Refuse lists with names that are not `good`."""
        bad = {title: [name for name in names if not good(name)] for title, names in lists.items()}
        if not any(bad.values()):
            return
        first = next(title for title, names in bad.items() if names)
        by_list = "; ".join(
            f"{Path(title).stem} {len(names):,} and {len(names) - len(bad[title]):,}"
            for title, names in lists.items()
        )
        raise self.error(
            f"{len(bad[first]):,} of {len(lists[first]):,} names in {first} {problem}: {first_names(bad[first])}.",
            where,
            cause,
            f"names by list, expected and found: {by_list}",
        )


def find_lists(tree: Tree, root: Path, classes: tuple[str, ...], needed: Sequence[str]) -> Lists:
    """The tree under `root` with its labels read.

    Args:
        tree: What it should be.
        root: The data root.
        classes: Names by index.
        needed: Files and folders that must be there beside `labels.csv`.
    """
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
            raise Lists(place, {}).error(
                f"row {number} of {LABELS} {problem}.",
                LABELS,
                "a header line, another data set's labels, or a file that was edited",
                f"{len(classes)} classes expected; {number - 1:,} good rows before this one",
                ",".join(row)[:80],
            )
        labels[row[0]] = label
    return Lists(place, labels)


def _incomplete(place: Place, missing: Sequence[str], needed: int) -> DataError:
    """The error about missing files and folders."""
    inside = (f"*/{name}/{LABELS}" for top in place.tree.folders for name in (top, f"{top}/{top}"))
    deeper = [path.parent for pattern in inside for path in sorted(place.root.glob(pattern))]
    return place.error(
        f"no {' and no '.join(f'`{item}`' for item in missing)} in {place.folder.absolute()}.",
        expected=f"{', '.join(f'{place.tree.folders[0]}/{item}' for item in missing)} under the data root",
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
