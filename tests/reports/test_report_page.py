"""The report in a real browser: its controls, the panel of a cell, names that are no markup, ten thousand runs.

In the first column FedDyn is 20 points above FedAvg with both seeds, and FedMR 10.
"""

import base64
import json
import shlex
import zlib
from pathlib import Path
from typing import Any

import pytest
from chromium import NAMELESS, Page
from command_line import Cli
from finished_runs import finish
from made_up_report import NAME, PARTITION
from processes import wait_until
from selenium.webdriver.common.keys import Keys

from benchmark.commands.report import write_report
from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery, plan_table, select
from benchmark.experiments.tables import spec_called
from benchmark.reports.details import cell_name
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

MEASURED = ["42.00 ± 2.83", "62.00 ± 2.83 best", "52.00 ± 2.83 second best"]


def packed_cells(page: Path) -> dict[str, str]:
    """The packed details of each cell of a page."""
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return dict(json.loads(data)["cells"])


def column(page: Page, number: int = 2) -> list[str]:
    return page.texts(f"#{NAME} tbody tr > :nth-child({number})")


def clipboard(page: Page) -> str:
    """Let the page write to the clipboard; what it holds."""
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": permissions})
    return page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")


def choose(page: Page, view: str) -> None:
    page.one(f"#{NAME} input[value={view}]").click()


def test_one_table(page: Page) -> None:
    """Of 30 runs one diverged and one is missing; the order of the three methods differs from the published one."""
    assert "28 of 30 runs done in 1 table" in page.one(".lead").text
    assert page.texts("nav a") == ["FedMR"]
    assert "not the paper’s" in page.one(f"#{NAME} .callout").text
    assert column(page) == MEASURED
    assert column(page, 6) == ["42.00 ± 2.83", "60.00 n = 1 of 2: 1 missing", "50.00 n = 1 of 2: 1 diverged"]
    assert page.texts("main h2") == ["Partially class-disjoint data"]  # nothing else was asked for
    gaps = page.one(".gaps").text
    assert gaps.startswith("1 missing.\n"), "nothing is to be carried out for the run that diverged"
    command = f"table name={NAME} rows=fedavg,feddyn,fedmr 'columns=fmnist/*' preset=quick seeds=2"
    assert f"python -m benchmark {command}" in gaps
    assert page.errors() == []


def test_several_tables(browser: Page, folder: Path, tmp_path: Path) -> None:
    """Tables 6 and 8 share the runs of FedAvg and FedMR. One seed, no spread. Analyses of the paper belong to it."""
    query = TableQuery(results=folder, paper="fedmr", seeds=1)
    browser.open(write_report(query, RunIndex(ResultsFolder(folder)), tmp_path))
    assert browser.texts("nav a") == ["FedMR"]
    assert browser.texts("main h2")[:2] == [
        "Do the methods rank as published?",
        "What is missing",
    ]
    assert len(browser.texts(".results h2")) == 4 and browser.texts(".results h2")[-1] == "fedmr_table3"
    assert browser.texts("#fedmr_table3 tr") == ["selection seconds", "POW-D 1.2500"]
    hint = browser.one(f"#{NAME} .hint").text
    assert "last round, one seed, so without spread. Open" in hint and "±" not in hint
    assert "±" not in " ".join(column(browser))


def test_a_table_of_no_paper(browser: Page, tmp_path: Path) -> None:
    """Its `short` is in the navigation, and no warning about a paper's numbers stands above it."""
    query = TableQuery(results=tmp_path, name="leaderboard", rows="fedavg", seeds=1)
    _, cells = plan_table(spec_called("leaderboard"), query)
    for cell in cells.values():
        finish(ResultsFolder(tmp_path).open(), cell.runs[0], [], final={"test": {"accuracy": 0.5}})
    browser.open(write_report(query, RunIndex(ResultsFolder(tmp_path)), tmp_path))
    assert browser.texts("nav a") == ["Leaderboard"] and not browser.all(".callout")
    assert f"{len(cells)} of {len(cells)} runs done" in browser.one(".lead").text


def test_names_are_whole_on_a_narrow_page(page: Page) -> None:
    page.look(400)
    cut = "return [...document.querySelectorAll('th, h2, nav')].filter((n) => n.scrollWidth > n.clientWidth + 1).length"
    assert page.run(cut) == 0
    assert page.run("return document.documentElement.scrollWidth") <= 400


def test_views(page: Page) -> None:
    """The sign of a difference is in the text, not in the colour alone."""
    shown = {}
    for view in ("published", "difference", "measured"):
        choose(page, view)
        shown[view] = column(page)
    assert shown == {
        "published": ["67.29", "71.01", "75.51"],
        "difference": ["–", "▲ +20.00 [+20.00, +20.00]", "▲ +10.00 [+10.00, +10.00]"],
        "measured": MEASURED,
    }


def test_order_of_rows(page: Page) -> None:
    """Highest, lowest, as in the paper. The order follows the view: FedMR has the highest published number."""
    head = f"#{NAME} thead tr:last-child th:nth-child(2)"
    avg, dyn, mr = "FedAvg", "FedDyn", "FedMR own"
    for order, names in (
        ("descending", [dyn, mr, avg]),
        ("ascending", [avg, mr, dyn]),
        ("none", [avg, dyn, mr]),
    ):
        page.one(f"{head} button").click()
        assert (page.one(head).get_attribute("aria-sort"), column(page, 1)) == (order, names)
    page.one(f"{head} button").click()
    choose(page, "published")
    assert column(page, 1) == [mr, dyn, avg]


def test_an_address_restores_the_view(page: Page, folder: Path) -> None:
    """View, order and filter stand in the address; another reader sees the same. Its link can be copied."""
    choose(page, "difference")
    page.one(f"#{NAME} thead tr:last-child th:nth-child(2) button").click()
    page.one("#filter").send_keys("fed")
    address = f"#{NAME}?view=difference&sort=-1&filter=fed"
    assert page.run("return location.hash") == address
    shown = column(page, 1), column(page)
    assert shown[0] == ["FedDyn", "FedMR own", "FedAvg"]
    page.open(folder / "report" / "index.html", address)
    wait_until(lambda: (column(page, 1), column(page)) == shown, "the view of the address")
    clipboard(page)
    page.one(f"#{NAME} .copy-as[data-form=link]").click()
    wait_until(lambda: clipboard(page).endswith(f"index.html{address}"), "the link is copied")


def test_a_table_is_copied_as_its_files_have_it(page: Page) -> None:
    """In the view that is shown. FedDyn is 20 points above FedAvg with both seeds."""
    clipboard(page)
    starts = {"csv": "table,preset,row,", "md": "# FedMR", "tex": "% fedmr_table1"}
    for form, start in starts.items():
        page.one(f"#{NAME} .copy-as[data-form={form}]").click()
        wait_until(lambda start=start: clipboard(page).startswith(start), form)
    choose(page, "difference")
    page.one(f"#{NAME} .copy-as[data-form=md]").click()
    wait_until(lambda: "FedDyn | +" in clipboard(page), "the differences")
    assert r"| FedDyn | +20.00 \[+20.00, +20.00\]" in clipboard(page)


def test_columns_and_rows_say_what_they_are(browser: Page, tmp_path: Path) -> None:
    """Unit, direction and aggregation of a column. FedDyn has published numbers and no run; FedMR's run diverged."""
    query = TableQuery(
        results=tmp_path, name=NAME, rows="fedavg,feddyn,fedmr", columns="fmnist/p5c2", seeds=1
    )
    cells, results = plan(select(spec_called(NAME), query), "quick", range(1)), ResultsFolder(tmp_path).open()
    finish(results, cells["fedavg", "fmnist/p5c2"].runs[0], [], final={"test": {"accuracy": 0.5}})
    finish(results, cells["fedmr", "fmnist/p5c2"].runs[0], state="diverged")
    browser.open(write_report(query, RunIndex(ResultsFolder(tmp_path)), tmp_path))
    assert browser.texts(f"#{NAME} td.status") == ["measured at quick", "published only", "measured at quick"]
    title = browser.one(f"#{NAME} th[data-name]").get_attribute("title")
    assert title and title.startswith("FMNIST P5C2: Test accuracy in %, last round")
    assert title.endswith("higher is better; mean over seeds.")


def test_filter(page: Page) -> None:
    """Words are parts of methods' names, in any case."""
    for words, rows in (("dyn, FEDAVG", ["FedAvg", "FedDyn"]), ("zzz", [])):
        page.one("#filter").send_keys(words)
        assert column(page, 1) == rows
        assert page.one("#matches").text == ("" if rows else "No method has such a name.")
        page.one("#filter").send_keys(*[Keys.BACKSPACE] * len(words))
        assert len(column(page, 1)) == 3 and page.one("#matches").text == ""


def test_on_paper_all_is_black_on_white(page: Page) -> None:
    page.look(scheme="dark")
    page.look(media="print")
    background = page.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert sum(background) > 600
    assert not page.one(".bar").is_displayed() and page.one(f"#{NAME} table").is_displayed()


def test_panel_by_keyboard(page: Page) -> None:
    """Enter opens the panel, Escape closes it, and the focus is back on the cell; the address names it meanwhile."""
    link = page.one(f"#{NAME} tbody tr:nth-child(3) td a")
    link.send_keys(Keys.ENTER)
    assert page.wait("#panel-title").text == "FedMR · FMNIST P5C2"
    assert page.run("return location.hash") == "#fedmr_table1/fedmr/fmnist%2Fp5c2"
    page.wait("#panel .copy")
    assert page.run("return document.getElementById('panel').contains(document.activeElement)")
    page.one(":focus").send_keys(Keys.ESCAPE)
    wait_until(lambda: not page.all("#panel"), "the panel closes")
    assert page.run("return document.activeElement") == link
    assert page.run("return location.hash") == f"#{NAME}"


def test_accuracies_over_clients_in_the_panel(browser: Page, tmp_path: Path) -> None:
    """At percentile q clients that take part have q/2 + 50 %, the others q/2; client 1 is one of these."""
    query = TableQuery(results=tmp_path, name=NAME, rows="fedavg", columns="fmnist/p5c2", seeds=1)
    numbers = {"client": (0.75, 0.5, 0.55, 0.125), "unseen": (0.25, 0.0, 0.05, 0.15)}
    records = [
        Record(2, split, "all", f"{name}_{metric}", value)
        for split, name in (("validation", "client"), ("unseen", "unseen"))
        for metric, value in zip(("mean", "worst", "p10", "spread"), numbers[name], strict=True)
    ]
    for q in range(0, 101, 10):
        records.append(Record(2, "validation", f"percentile={q}", "client_accuracy", q / 200 + 0.5))
        records.append(Record(2, "unseen", f"percentile={q}", "unseen_accuracy", q / 200))
    (run,) = plan(select(spec_called(NAME), query), "quick", range(1))["fedavg", "fmnist/p5c2"].runs
    finish(
        ResultsFolder(tmp_path).open(), run, records, final={"test": {"accuracy": 0.5}}, made={"unseen": [1]}
    )
    page = write_report(query, RunIndex(ResultsFolder(tmp_path)), tmp_path)
    browser.open(page, "#fedmr_table1/fedavg/fmnist%2Fp5c2")
    browser.wait("#panel .copy")
    text = browser.one("#panel").text
    assert "take part; held-out samples 75.00 50.00 55.00 12.50" in text
    assert "never take part; all samples 25.00 0.00 5.00 15.00" in text
    assert "Never: clients 1." in text
    assert len(browser.all("#panel svg[aria-label^='Accuracy at each tenth percentile'] path[stroke]")) == 2
    assert browser.errors() == []


def test_content_of_the_panel(page: Page, folder: Path) -> None:
    """Opened by its address, as a link that was shared."""
    page.open(folder / "report" / "index.html", "#fedmr_table1/fedmr/fmnist%2Fp5c2")
    page.wait("#panel .copy")
    text = page.one("#panel").text
    charts = {chart.get_attribute("aria-label"): chart for chart in page.all("#panel svg.plot")}
    seeds, accuracy, worst, groups, clients, labels = charts
    assert seeds.startswith("One dot for each seed")
    assert len(dots(charts[seeds])) == 6 + 3  # and three published
    over = "accuracy (%) of each seed over rounds"
    assert (accuracy, worst) == (f"test {over}", f"worst-group {over}")
    assert len(dots(charts[accuracy])) == 4
    assert len(dots(charts[groups])) == 4 and {"cat", "dog"} <= set(charts[groups].text.split())
    assert len(charts[clients].find_elements("css selector", "rect")) == 3
    assert {"3", "1", "5", "2"} <= set(charts[labels].text.split())
    origin = ("commit\nabc", "host; x; 1 thread(s)", PARTITION, "/seed1")
    assert all(words in text for words in ("method.client.fedmr.mu2", "1,234", *origin))
    assert text.count("runs/") == 2
    page.one("#panel select").send_keys("seed 1")
    assert len(page.all("#panel svg.plot")) == 6
    clipboard(page)
    page.one("#panel .copy").click()
    wait_until(lambda: page.one("#panel .copy").text == "Copied", "the command is copied")
    assert clipboard(page) == (
        f"python -m benchmark table name={NAME} rows=fedmr columns=fmnist/p5c2 preset=quick device=cpu seeds=2 "
        "results=repeated"
    )
    page.one("#panel .close").click()
    assert not page.all("#panel") and page.errors() == []


def dots(chart: Any) -> list[Any]:
    return chart.find_elements("css selector", "g[aria-label=dot] > *")


def test_panel_of_a_cell_with_gaps_and_of_an_average(page: Page, folder: Path) -> None:
    page.run("location.hash = arguments[0]", cell_name(spec_called(NAME), "fedmr", "fmnist/iid"))
    page.wait("#panel .copy")
    text = page.one("#panel").text
    assert page.texts("#panel section:first-child tbody tr") == ["0 50 done", "1 – diverged"]
    assert "Repeat it" in text, "another launch would not change a run that diverged"
    assert page.one("#panel .command code").text.endswith("seeds=2 results=repeated")
    page.run("location.hash = arguments[0]", cell_name(spec_called(NAME), "fedmr", "fmnist/avg"))
    wait_until(lambda: "Average of" in page.one("#panel").text, "the panel of the average")
    page.one("#panel li a").click()
    wait_until(lambda: page.texts("#panel-title") == ["FedMR · FMNIST P5C2"], "the panel of its first column")


def test_names_for_screen_readers(page: Page) -> None:
    page.one(f"#{NAME} tbody td a").click()
    page.wait("#panel .copy")
    assert page.run(NAMELESS) == []


def test_the_command_of_a_cell_gives_the_same_bits(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both seeds' records and models, in a results folder that did not exist before."""
    words = ["table", "name=fedsdc_table2", "rows=fedsdc_m1", "seeds=1", "launcher=inline"]
    assert cli(*words).out.endswith("report: results/report/index.html\n")
    cells = packed_cells(tmp_path / "results" / "report" / "index.html")
    text = (tmp_path / "results" / "report" / "index.html").read_text()
    assert text.count('<section id="') == 2  # the head of the page, and what was asked for
    packed = base64.b64decode(cells["fedsdc_table2/fedsdc_m1/niid1"])
    command = json.loads(zlib.decompress(packed, wbits=-15))["command"]
    monkeypatch.setattr(
        "benchmark.commands.tables.write_report", lambda *_, **__: ""
    )  # takes seconds, is not looked at
    program, *words = shlex.split(command.removeprefix("python -m "))
    assert program == "benchmark" and cli(*words, "launcher=inline").code == 0
    first, second = (ResultsFolder(tmp_path / name) for name in ("results", "repeated"))
    assert first.run_keys() == second.run_keys() != []
    for key in first.run_keys():
        one, two = (results.run(key).result() for results in (first, second))
        assert one and two
        assert (one.model_sha256, one.records_sha256) == (two.model_sha256, two.records_sha256)
