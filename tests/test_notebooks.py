"""docs/notebooks, carried out as they are."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in its folder, makes the same kinds of outputs that are shown, and leaves nothing there."""
    for name in ("FEDTABLES_CACHE", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows pictures
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    before = sorted(path.parent.iterdir())
    book = nbformat.read(path, as_version=4)
    kinds = [_kinds(cell) for cell in book.cells]
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(book, timeout=900, kernel_name="python3", resources=resources).execute()
    assert [_kinds(cell) for cell in book.cells] == kinds and len(kinds) > 5
    assert sorted(path.parent.iterdir()) == before


def _kinds(cell: nbformat.NotebookNode) -> list[list[str]]:
    """What the outputs of a cell are; lines about progress do not count."""
    return [sorted(output["data"]) for output in cell.get("outputs", []) if output["output_type"] != "stream"]
