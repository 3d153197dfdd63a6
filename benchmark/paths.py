"""Where FedTables looks for code, configuration and printed numbers: in repositories of the user, and in this checkout.

``FEDTABLES_PATH=/my/repo:/another`` names repositories. Each may hold ``methods/``, ``partitions/``, ``datasets/``,
``models/``, ``metrics/``, ``conf/<group>/`` and ``results/published/``, as the checkout does. This module is loaded
before all others, and so imports nothing slow at its top.
"""

import os
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "FEDTABLES_PATH"

PACKAGES = {
    "methods": "methods",
    "partitions": "partitions",
    "datasets": "datasets",
    "models": "benchmark.models",
    "metrics": "benchmark.metrics",
}
"""Folder of a repository -> package to which it adds modules."""

PARTS = (*(f"{folder}/" for folder in PACKAGES), "conf/", "results/published/")

ROOT = Path(__file__).resolve().parents[1]
"""This checkout."""

REPOSITORIES = [
    Path(folder).expanduser().resolve()
    for folder in dict.fromkeys(os.environ.get(VARIABLE, "").split(os.pathsep))
    if folder
]
"""The repositories of the user."""

ROOTS = [*(folder for folder in REPOSITORIES if folder != ROOT), ROOT]

CONF_FOLDERS = [root / "conf" for root in ROOTS]
"""Folders of configuration files."""

CONF = ROOT / "conf"
PUBLISHED = ROOT / "results" / "published"


def require_usable() -> None:
    """Raise `ConfigError` if the variable names a folder that holds nothing that FedTables looks for.

    Also if another package has the name of one of ours, as Hugging Face's `datasets` does.
    """
    from benchmark.errors import ConfigError, wrong

    for package in PACKAGES.keys() & PACKAGES.values():
        spec = find_spec(package)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent != ROOT / package:
            raise ConfigError(
                f"another package called {package!r} ({origin or 'without a file'}) comes before that of "
                f"FedTables. Use an environment without it, or put the checkout first: PYTHONPATH={ROOT}."
            )
    for folder in REPOSITORIES:
        if not folder.is_dir():
            raise ConfigError(wrong(VARIABLE, str(folder), "folders that exist; this one is missing"))
        if not any((folder / part).is_dir() for part in PARTS):
            raise ConfigError(wrong(VARIABLE, str(folder), f"folders that hold one of {', '.join(PARTS)}"))


def unset() -> str:
    """``; FEDTABLES_PATH is not set`` for messages about names that a repository of the user may have, or nothing."""
    return "" if REPOSITORIES else f"; {VARIABLE} is not set"


def folders_of(folder: str) -> list[str]:
    """The folders of the user's repositories with this name, as ``methods`` or ``methods/selection``."""
    return [str(root / folder) for root in ROOTS if root != ROOT and (root / folder).is_dir()]


def conf_files(group: str) -> dict[str, Path]:
    """The configuration files of a group by name, sorted. Of two with one name it is that of the checkout."""
    files = [path for folder in CONF_FOLDERS for path in (folder / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def conf_file(group: str, name: str) -> Path | None:
    """The file of a name in a group, if there is one. `ConfigError` if there are two."""
    return _only(f"conf/{group}/{name}.yaml", [folder / group / f"{name}.yaml" for folder in CONF_FOLDERS])


def published_file(name: str) -> Path:
    """A file of printed numbers, or where it would be in the checkout. `ConfigError` if there are two."""
    file = f"results/published/{name}"
    return _only(file, [root / file for root in ROOTS]) or ROOT / file


def _only(name: str, places: list[Path]) -> Path | None:
    from benchmark.errors import ConfigError

    there = [path for path in places if path.is_file()]
    if len(there) > 1:
        raise ConfigError(f"{name} is there twice: {' and '.join(map(str, there))}. Rename one of them.")
    return there[0] if there else None
