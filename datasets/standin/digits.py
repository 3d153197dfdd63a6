"""scikit-learn's bundled handwritten digits, and stand-ins for the papers' data sets made of them: no download.

The digits are the test part of the UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998),
1,797 images of 8 x 8 in 17 shades of grey. scikit-learn ships no split into train and test, so the one here is ours.

A stand-in has the classes, attributes, sources, imbalance and channels of the original. Images are 8 x 8 (8 x 16 for
100 classes). Training images are made of training digits only, test images of test digits.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from datasets.core.base import Facts, Int64Array, Options, RawDataset, Split
from datasets.core.folders import Tree
from datasets.core.registry import dataset
from datasets.standin import rendering

SOURCE = "https://archive.ics.uci.edu/ml/datasets/Optical+Recognition+of+Handwritten+Digits"
# Of the digits: what `load_digits().DESCR` says.
TREE = Tree(title="digits", licence=f"not stated by scikit-learn, which copies them from {SOURCE}")

TEST_SHARE = 0.2
"""Of the digits of each class."""

# Digits whose mirror image is no digit: they make the classes beyond ten.
MIRRORED = (2, 3, 4, 6, 7, 9, 5)
PAIRS = 100


def split_digits() -> tuple[Split, Split]:
    """Training and test digits, uint8 [N, 1, 8, 8]: 80/20 within each class, the same split each time.

    Both are in the original order. Stand-ins keep to this split.
    """
    from sklearn.datasets import load_digits  # slow to import and needed only once per cache

    bundle = load_digits()
    images = np.rint(bundle.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bundle.target.astype(np.int64)
    # RandomState's stream is frozen by numpy's policy, so the split does not move with numpy's version.
    generator = np.random.RandomState(0)
    held_out = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        members = generator.permutation(np.flatnonzero(labels == digit))
        held_out[members[: round(TEST_SHARE * len(members))]] = True
    return Split(images[~held_out], labels[~held_out]), Split(images[held_out], labels[held_out])


@dataset("digits", options=Options, tree=TREE)
def digits(options: Options, root: Path) -> RawDataset:
    """Handwritten digits bundled with scikit-learn: 1,797 grey images of 8 x 8, 10 classes; no download."""
    train, test = split_digits()
    return RawDataset(train=train, test=test, classes=tuple(map(str, range(10))))


# Stand-ins -----------------------------------------------------------------------------------------------------------

Counts = int | tuple[int, ...] | tuple[tuple[int, ...], ...]


class StandInOptions(Options):
    """Properties of a stand-in.

    Attributes:
        stands_for: Name of the original, for the note beside the results.
        not_kept: Properties of the original that the stand-in does not have, for the same note.
        classes: 2 to 10 (digits, grouped), 11 to 17 (mirrored digits are added) or 100 (two digits side by side).
        class_names: Names of the original's classes, for the same note; its own are made from the digits.
        groups: Digits of each class (for up to 10 classes); by default the ten digits cut into equal runs.
        attributes: Names of two attributes, or none. The styles `colour` and `scene` draw them.
        sources: Names of the sources (sites, archives); each has its own appearance. Not together with attributes.
        appearances: Number of the appearance of each source; by default 0, 1, 2, ...
        train_counts, test_counts: Images: one number for every cell, or one per class, or one row per class with a
            number per attribute or source. A cell is a class, or a class with an attribute or source.
        channels: 1 or 3.
        style: How the digits are drawn, see `rendering.py`.
        cue: Strength of the attribute in the background (style `scene`), from 0 to 1.
        noise: Standard deviation of normal noise, on the 0..1 scale.
        ghost: Brightness of a second, random digit drawn over the first, from 0 to 1.
        seed: Of all random draws; train and test have their own streams.
    """

    stands_for: str
    not_kept: str = ""
    classes: int
    class_names: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    attributes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    appearances: tuple[int, ...] = ()
    train_counts: Counts
    test_counts: Counts
    channels: Literal[1, 3] = 1
    style: Literal["grey", "colour", "scene", "clutter", "stain"] = "grey"
    cue: float = Field(default=1.0, ge=0, le=1)
    noise: float = Field(default=0.15, ge=0, le=1)
    ghost: float = Field(default=0.0, ge=0, le=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> "StandInOptions":
        flat = [digit for group in self.groups for digit in group]
        whole = len(self.groups) == self.classes and all(self.groups) and len({*flat}) == len(flat)
        shown = self.style in ("colour", "scene")
        for bad, message in (
            (self.classes not in (*range(2, 18), PAIRS), f"classes must be 2 to 17, or {PAIRS}"),
            (len(self.class_names) not in (0, self.classes), "class_names must be one for each class"),
            (self.groups and not whole, "groups need one list of digits for each class, no digit twice"),
            (not {*flat} <= {*range(10)}, "groups hold digits 0 to 9"),
            (len(self.attributes) not in (0, 2), "attributes are two names or none"),
            (self.attributes and self.sources, "attributes are not together with sources"),
            (bool(self.attributes) != shown, "the styles colour and scene show two attributes, others none"),
            (self.style != "grey" and self.channels != 3, f"the style {self.style} has three channels"),
            (len(self.appearances) not in (0, len(self.sources)), "appearances must be one for each source"),
        ):
            if bad:
                raise ValueError(message)
        for name in ("train_counts", "test_counts"):
            try:
                table = self.table(getattr(self, name))
            except ValueError:
                expected = f"one number, one for each class, or a row of {self.columns} for each class"
                raise ValueError(f"{name} must be {expected}") from None
            if table.min() < 0 or table.sum() == 0:
                raise ValueError(f"{name} must not be negative, nor all zero")
        return self

    @property
    def columns(self) -> int:
        """Number of cells per class: attributes, sources, or 1."""
        return len(self.attributes) or len(self.sources) or 1

    def table(self, counts: Counts) -> Int64Array:
        """`counts` written out as [classes, columns]; numbers per class are spread evenly, the first get the rest."""
        given = np.asarray(counts, dtype=np.int64)
        if given.ndim == 1 and given.shape == (self.classes,):
            column = np.arange(self.columns)
            return given[:, None] // self.columns + (column < given[:, None] % self.columns)
        if given.ndim == 2 and given.shape != (self.classes, self.columns):
            raise ValueError("wrong number of rows or columns")
        return np.array(np.broadcast_to(given, (self.classes, self.columns)))


def _facts(options: StandInOptions) -> Facts:
    train, test = (int(options.table(counts).sum()) for counts in (options.train_counts, options.test_counts))
    return Facts(train, test, options.classes, options.channels, 8, len(options.sources))


@dataset("standin", options=StandInOptions, tree=TREE, facts=_facts)
def standin(options: StandInOptions, root: Path) -> RawDataset:
    """Images made of scikit-learn's digits that stand in for another data set; see conf/dataset/digits_*.yaml."""
    train, test = split_digits()
    table, test_table = options.table(options.train_counts), options.table(options.test_counts)
    return RawDataset(
        train=_draw(options, train, table, np.random.RandomState([options.seed, 1])),
        test=_draw(options, test, test_table, np.random.RandomState([options.seed, 2])),
        classes=_class_names(options),
        attributes=options.attributes,
        sources=options.sources,
        note=_note(options, train, int(table.sum())),
    )


def _draw(options: StandInOptions, pool: Split, table: Int64Array, generator: np.random.RandomState) -> Split:
    """One split with `table` [classes, columns] images, in random order."""
    labels, columns, digits, seconds, shifts = _plan(options, pool, table, generator)
    paper = pool.images[:, 0] / 255.0
    ink = rendering.shift(paper[digits], shifts)
    if options.classes == PAIRS:
        beside = rendering.shift(paper[seconds], generator.permutation(shifts))
        ink = np.concatenate([ink, beside], axis=2)
    elif options.classes > 10:
        mirrored = labels >= 10
        ink[mirrored] = ink[mirrored, :, ::-1]
    if options.ghost:
        ink = np.maximum(ink, options.ghost * ink[generator.permutation(len(ink))])
    ink *= generator.uniform(0.7, 1.0, (len(ink), 1, 1))
    images = rendering.STYLES[options.style](ink, columns, options.cue, generator)
    images = np.broadcast_to(images, (len(images), options.channels, *images.shape[2:]))
    if options.sources:
        appearances = np.array(options.appearances or range(len(options.sources)))
        images = rendering.appear(images, appearances[columns])
    return Split(
        rendering.finish(images, options.noise, generator),
        labels,
        columns if options.attributes else None,
        columns if options.sources else None,
    )


def _plan(
    options: StandInOptions, pool: Split, table: Int64Array, generator: np.random.RandomState
) -> Int64Array:
    """What is drawn for each image of a split, [5, N]: class, column, digit, second digit, and shift."""
    parts = []
    for label, row in enumerate(table):
        total = int(row.sum())
        first, second = _digits_of(options, label)
        digits, shifts = _uses(np.flatnonzero(np.isin(pool.labels, first)), total, generator)
        seconds, _ = _uses(np.flatnonzero(np.isin(pool.labels, second)), total, generator)
        # In random order, so that a column does not get the unshifted digits and another the shifted ones.
        order = generator.permutation(total)
        labels, columns = np.full(total, label), np.repeat(np.arange(len(row)), row)
        parts.append([labels, columns, digits[order], generator.permutation(seconds), shifts[order]])
    return np.concatenate(parts, axis=1)[:, generator.permutation(int(table.sum()))]


def _uses(members: Int64Array, total: int, generator: np.random.RandomState) -> tuple[Int64Array, Int64Array]:
    """`total` uses of digits: all once before any a second time, each time with another shift."""
    rounds = -(-total // len(members))
    digits = np.concatenate([generator.permutation(members) for _ in range(rounds)] or [members])[:total]
    shifts = (np.arange(total, dtype=np.int64) // len(members)) % len(rendering.SHIFTS)
    return digits, shifts


def _digits_of(options: StandInOptions, label: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Digits of a class: (first, second); the second is drawn beside the first for 100 classes only."""
    if options.classes == PAIRS and not options.groups:
        return (label // 10,), (label % 10,)
    if options.groups:
        group = options.groups[label]
    elif options.classes > 10:
        group = (label if label < 10 else MIRRORED[label - 10],)
    else:
        group = tuple(digit for digit in range(10) if digit * options.classes // 10 == label)
    return group, group


def _class_names(options: StandInOptions) -> tuple[str, ...]:
    if options.classes == PAIRS:
        return tuple(f"{number:02d}" for number in range(PAIRS))
    names = []
    for label in range(options.classes):
        digits = "/".join(map(str, _digits_of(options, label)[0]))
        names.append(f"{digits} mirrored" if label >= 10 else digits)
    return tuple(names)


def _note(options: StandInOptions, train: Split, total: int) -> str:
    size = "8 x 16" if options.classes == PAIRS else "8 x 8"
    text = (
        f"scikit-learn's digits stand in for {options.stands_for}: {total:,} training images of {size} made from "
        f"{len(train):,} digits by one-pixel shifts, gain jitter and noise; numbers are not comparable with the paper's"
    )
    if options.class_names:
        text += f". Its classes stand for {', '.join(options.class_names)}"
    return f"{text}. Not kept: {options.not_kept}" if options.not_kept else text
