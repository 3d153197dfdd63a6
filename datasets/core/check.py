"""Verification of a prepared data set: fingerprint, and numbers of images against the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.core.base import Dataset, Expected, Split
from datasets.core.prepare import (
    damage_message,
    damaged_content,
    damaged_files,
    locate,
    open_arrays,
    read_marker,
)


@dataclass(frozen=True)
class Count:
    """Number of images of one class (and attribute, source) in a split; None if the data set has none."""

    split: str
    label: str
    attribute: str | None
    source: str | None
    images: int


@dataclass(frozen=True)
class Report:
    """What `check` found: counts per split, class, attribute and source, and problems (none: all is well).

    `expected` are the published counts, as in `base.Built`. A difference is not a problem: the builder refuses wrong
    files, and a cut-down copy differs on purpose.
    """

    name: str
    folder: Path
    fingerprint: str
    counts: tuple[Count, ...]
    note: str
    problems: tuple[str, ...]
    expected: Expected = ()

    @property
    def ok(self) -> bool:
        """Whether the set is prepared and its content is what was prepared."""
        return not self.problems


def check(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Report:
    """Read a prepared set in full, verify its fingerprint and count its images; writes nothing.

    Raises:
        DataError: Unknown name or option. A set that is not prepared or damaged is a problem in the report.
    """
    place = locate(name, options, root, cache)
    marker = read_marker(place.folder)
    if marker is None:
        problem = f"not prepared in {place.folder}: run `python -m benchmark data prepare` for it"
        return Report(name, place.folder, "", (), "", (problem,))
    damage = damaged_files(place.folder, marker) or damaged_content(place.folder, marker)
    if damage:
        problem = damage_message(place, damage)
        return Report(name, place.folder, marker["fingerprint"], (), marker["note"], (problem,))
    data = open_arrays(place, marker)
    counts = (*_count("train", data.train, data), *_count("test", data.test, data))
    # Sets that were prepared before their published counts were known have none.
    expected = tuple(
        (str(part), str(label), str(group), int(n)) for part, label, group, n in marker.get("expected", ())
    )
    return Report(name, place.folder, marker["fingerprint"], counts, marker["note"], (), expected)


def _count(part: str, split: Split, data: Dataset) -> list[Count]:
    """A count for each class, attribute and source, also those of 0 images."""
    attributes = data.attributes if split.attributes is not None else (None,)
    sources = data.sources if split.sources is not None else (None,)
    zeros = np.zeros(len(split), dtype=np.int64)
    index = (
        split.labels,
        zeros if split.attributes is None else split.attributes,
        zeros if split.sources is None else split.sources,
    )
    table = np.zeros((len(data.classes), len(attributes), len(sources)), dtype=np.int64)
    np.add.at(table, index, 1)
    return [
        Count(part, data.classes[label], attributes[attribute], sources[source], int(number))
        for (label, attribute, source), number in np.ndenumerate(table)
    ]
