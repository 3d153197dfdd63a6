"""``export archive`` and ``runs import=``: a table that another lab has filled."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from command_line import Cli, footprint
from finished_runs import finish

from benchmark.experiments.plan import plan, unique_runs
from benchmark.experiments.tables import spec_called
from benchmark.runs.folder import ResultsFolder


@pytest.fixture
def theirs(cli: Cli, toy: Callable[..., None]) -> list[str]:
    """All runs of a table in the folder ``b``, as if they had been carried out there."""
    runs = unique_runs([plan(spec_called("toy_table1"), "quick")])
    for run in runs.values():
        finish(ResultsFolder(Path("b")).open(), run, final={"test": {"accuracy": 0.6}})
    return sorted(runs)


def test_a_table_of_imported_runs(cli: Cli, theirs: list[str]) -> None:
    """Nothing is left to do. Table, report and list say who ran the rows, and only a user removes them."""
    assert (
        cli("export", "archive", "by=lab-b", "results=b").out
        == "lab-b.zip\n12 runs, which runs import=lab-b.zip reads\n"
    )
    out = cli("runs", "import=lab-b.zip", "results=a").out
    assert out.startswith("12 runs by lab-b imported to a/imported/lab-b.\n")
    before = footprint(Path("a/imported"))
    code, out, _ = cli("table", "name=toy_table1", "results=a")
    assert code == 0 and "toy_table1: 12 done" in out and not list(Path("a").glob("runs/*"))
    table = pd.read_csv("a/tables/quick/toy_table1.csv")
    assert set(table["by"]) == {"lab-b"} and set(table["mean"]) == {60}
    assert Path("a/report/index.html").read_text().count("<small>run by lab-b</small>") == 2
    code, out, err = cli("runs", "method=fedavgm", "results=a", "--delete")
    assert code == 0 and err.count("left: ") == 6 and footprint(Path("a/imported")) == before
    assert len(cli("runs", "results=a", "format=csv").out.splitlines()) == 13


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "archive"], "by: got ''; expected who ran the runs: at most 40 letters"),
        (["export", "archive", "by=a/b"], "by: got 'a/b'"),
        (
            ["export", "archive", "by=b", "method=fedsam", "results=b"],
            "got 'method=fedsam'; expected conditions that",
        ),
        (["export", "archive", "by=b", "metod=x", "results=b"], "unknown key 'metod'"),
        (["runs", "import=absent.zip"], "absent.zip.*No such file"),
        (["runs", "import=b.zip", "method=fedavg"], "expected no word but results=FOLDER beside import=FILE"),
    ],
)
def test_mistakes(refusal: Callable[..., str], theirs: list[str], words: list[str], said: str) -> None:
    refusal(words, said)
