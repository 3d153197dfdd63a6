"""``python -m benchmark document``: write the pages of docs/reference from the code, or check them."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmark.cli.options import OutOption, parse
from benchmark.paths import ROOT
from benchmark.runs.files import write_with_folder

FOLDER = ROOT / "docs" / "reference"


def main(words: Sequence[str]) -> int:
    """Write the pages; ``check``: exit code 1 if one is out of date."""
    return write_pages(words, "document", FOLDER, "benchmark.cli.method_pages")


def write_pages(words: Sequence[str], command: str, folder: Path, module: str) -> int:
    """The command ``COMMAND [check] [out=FOLDER]``: write pages, or check them; exit code 1 if one is outdated.

    ``module`` has a function ``pages``. It is imported after the words have been checked, since most need PyTorch.
    """
    checking = bool(words) and words[0] == "check"
    folder = parse(words[checking:], f"{command} [check]", OutOption).out or folder
    code = 0
    for name, text in import_module(module).pages().items():
        path, new = folder / name, text.encode()
        if not checking:
            write_with_folder(path, new)
            print(path)
        elif not path.is_file() or path.read_bytes() != new:
            state = "out of date" if path.is_file() else "missing"
            print(f"{path}: {state}; write it with: python -m benchmark {command}", file=sys.stderr)
            code = 1
        else:
            print(f"{path}: up to date")
    return code
