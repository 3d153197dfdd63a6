"""The leaderboard's comparison in a real browser.

On both data sets SCAFFOLD is 21 points above FedAvg without momentum with both seeds, which is 10 below FedAvg. MOON is
0 and 20 above FedAvg: mean 10, and the 95 % interval holds zero. Central, an anchor, is 40
and 30 above FedAvg: mean 35, and the interval holds zero. All runs cost the same.
"""

from pathlib import Path

import pytest
from chromium import NAMELESS, Page
from finished_runs import finish
from processes import wait_until

from benchmark.commands.report import write_report
from benchmark.engine.records import Record
from benchmark.experiments.selection import TableQuery, plan_cells
from benchmark.experiments.tables import spec_called
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

REACHED = {
    "fedavg": (0.5, 0.6),
    "fedavg_m0": (0.4, 0.5),
    "scaffold": (0.61, 0.71),
    "moon": (0.5, 0.8),
    "central": (0.9, 0.9),
}
COLUMNS = ("fmnist/p10c2", "pacs")
ORDER = ["SCAFFOLD", "MOON", "FedAvg", "FedAvg without momentum", "Central"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    results, spec = ResultsFolder(folder).open(), spec_called("leaderboard")
    query = TableQuery(results=folder, name="leaderboard", seeds=2, tuned="off")
    for (row, column), cell in plan_cells(spec, spec, query).items():
        for run, value in zip(cell.runs, REACHED.get(row, ()), strict=False):
            if column in COLUMNS:
                curve = [Record(t, "test", "all", "accuracy", value * t / 30) for t in (0, 15, 30)]
                finish(results, run, curve, model=row, seconds=10.0)
    return write_report(query, RunIndex(results), folder / "report")


def test_ranking(browser: Page, report: Path) -> None:
    """Means 66, 65, 55 and 45 on both data sets, and 90 of Central, which is not ranked."""
    browser.open(report, "#board-ranking?view=default")
    names = "#board-ranking tbody th"
    wait_until(lambda: browser.texts(names) == ORDER, "the methods by rank")
    cells = browser.texts("#board-ranking tbody tr td:nth-child(3)")
    assert cells == ["66.00 +21.00*", "65.00 +10.00", "55.00", "45.00 −10.00*", "90.00 +35.00"]
    assert set(browser.texts("#board-ranking td.status")) == {"measured at quick"}
    title = browser.one("#board-ranking th:nth-child(3)").get_attribute("title")
    assert title and "in %, higher is better" in title and "mean over seeds" in title
    browser.one("#board-ranking tbody a").click()
    wait_until(lambda: "+21.00 from FedAvg without momentum" in browser.one("#board-method").text, "SCAFFOLD")
    assert browser.run("return location.hash") == "#board-method?method=scaffold"
    assert browser.errors() == []


def test_wins(browser: Page, report: Path) -> None:
    browser.open(report, "#board-wins?view=default")
    row = "#board-wins tbody tr:nth-child({}) td"
    browser.wait(row.format(1))
    counts = [
        "",
        "2/0/0",
        "0/0/2",
        "0/2/0",
        "0/2/0",
    ]  # FedAvg against itself, without, SCAFFOLD, MOON, Central
    assert browser.texts(row.format(1)) == counts
    browser.open(report, "#board-wins?view=default&data=pacs")
    wait_until(lambda: browser.texts(row.format(3)) == ["win", "win", "", "tie", "tie"], "SCAFFOLD on PACS")
    assert browser.run("return document.querySelector('#board-wins select').value") == "pacs"


def test_cost_and_one_method(browser: Page, report: Path) -> None:
    """At equal cost the best method is named, and MOON is not; Central is named, but does not count as the best.

    MOON's page has curves for each data set and the ledger's entries.
    """
    browser.open(report, "#board-method?method=moon")
    browser.wait("#board-method figure")
    assert len(browser.all("#board-method figure svg")) == len(COLUMNS)
    assert "+10.00 from FedAvg" in browser.one("#board-method").text
    assert len(browser.all("#board-cost g[aria-label=dot] > *")) == len(REACHED)
    names = "return [...document.querySelectorAll('#board-cost g[aria-label=text] text')].map((n) => n.textContent)"
    assert set(browser.run(names)) == {"FedAvg", "FedAvg without momentum", "SCAFFOLD", "Central"}
    browser.one("#filter").send_keys("scaf")
    wait_until(lambda: browser.run(names) == ["SCAFFOLD"], "the filter names it")
    assert browser.texts("#board-wins tbody th") == ["SCAFFOLD"]


PLACED = """
    document.body.insertAdjacentHTML("afterbegin", `<svg width="400" height="200" font-size="10">${
      [60, 60, 60, 60, 60, 398].map((x) => `<text transform="translate(${x},100)">FedAvg</text>`).join("")}</svg>`);
    const svg = document.body.firstElementChild;
    placeNames([...svg.children], svg.getBoundingClientRect());
    const places = [...svg.children].map((name) => name.getAttribute("text-anchor") + name.getAttribute("y"));
    svg.remove();
    return places"""
"""Five points at one place and one at the right edge, each with a name."""


def test_names_of_points(browser: Page, report: Path) -> None:
    """A point has four places for a name, so one of five is left out; at the right edge it is on the left."""
    browser.open(report)
    assert browser.run(PLACED) == ["start0.32em", "end0.32em", "middle-8", "middle15", "end0.32em"]


def test_narrow_and_for_screen_readers(browser: Page, report: Path) -> None:
    browser.open(report, "#board-wins?view=default")
    browser.wait("#board-wins td")
    browser.look(400)
    wait_until(
        lambda: browser.run("return document.querySelector('#board-cost svg').clientWidth") <= 400, "drawn"
    )
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    assert browser.run(NAMELESS) == [] and browser.errors() == []
