"""One recorded value. Apart from the rest, so that reading results needs no torch."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One value in long form.

    ``round`` counts finished rounds (0 = before training); ``group`` is ``all``, ``class=c``, ``attribute=a`` or
    ``class=c,attribute=a``.
    """

    round: int
    split: str
    group: str
    metric: str
    value: float
