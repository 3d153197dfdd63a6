"""Whether this machine can do what its user wants: checks, each of which gives one `CheckResult` or several."""

from typing import NamedTuple


class CheckResult(NamedTuple):
    """One check. ``state``: ``ok``, ``note``, or ``problem`` if what the user asked for would fail."""

    what: str
    state: str
    fact: str
    remedy: str = ""


def bad(asked: bool) -> str:
    """The state of what is missing: a problem if the user asked for it."""
    return "problem" if asked else "note"
