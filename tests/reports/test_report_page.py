"""The report in a real browser: its controls, the panel of a cell, names that are no markup, ten thousand runs.

The runs are made up. In column ``fmnist/p5c2`` FedAvg has 40 and 44 (mean 42, standard deviation 4 / sqrt(2) = 2.83),
FedDyn 60 and 64, FedMR 50 and 54; its run of seed 1 in ``fmnist/iid`` diverged, and FedDyn's is missing there. The
paper prints 67.29, 71.01 and 75.51 in this column, so the differences are -25.29, -9.01 and -23.51.
"""

import base64
import json
import shlex
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from command_line import Cli
from finished_runs import finish
from processes import wait_until
from selenium.webdriver.common.keys import Keys

from benchmark.cli import report
from benchmark.cli.report import write_report
from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery, select
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.reports.details import cell_name
from benchmark.reports.layout import as_table
from benchmark.reports.render.html.page import Section, render
from benchmark.reports.results import Cell, CellRun, build_results
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder

NAME = "fedmr_table1"
CHOICE: dict[str, Any] = {"name": NAME, "rows": "fedavg,feddyn,fedmr", "columns": "fmnist/*", "seeds": 2}
REACHED = {"fedavg": 0.40, "feddyn": 0.60, "fedmr": 0.50}
HOSTILE = "</script><script>window.hurt=1</script>\"'&<img src=x onerror=window.hurt=2> 🙂\u2028{{ 7 * 7 }}"
MEASURED = ["42.00 ± 2.83", "62.00 ± 2.83 best", "52.00 ± 2.83 second best"]
PARTITION = "pcdd-000000000000"


def records(reached: float) -> list[Record]:
    """Two evaluations, in each two classes; client 1 takes part in round 1, clients 0 and 2 in round 2."""
    values = [(0, reached / 2), (2, reached)]
    curves = [
        Record(round, "test", "all", metric, value * share)
        for round, value in values
        for metric, share in (("accuracy", 1.0), ("worst_group_accuracy", 0.5))
    ]
    groups = [Record(2, "test", f"class={k}", "accuracy", reached) for k in (0, 1)]
    taken = [Record(t, "participation", f"client={k}", "weight", 1.0) for t, k in ((1, 1), (2, 0), (2, 2))]
    return [*curves, *groups, *taken, Record(2, "cost", "all", "scalars_up", 1234.0)]


def fill(folder: Path, spec: TableSpec, text: str = "") -> None:
    """The runs of a table, and their partition; ``text`` is part of all that can be text."""
    results = ResultsFolder(folder).open()
    meta = {
        "commit": f"abc{text}",
        "partition": PARTITION,
        "host": f"host{text}",
        "device": "cpu: x",
        "threads": 1,
    }
    for (row, column), cell in plan(spec, "quick", range(2)).items():
        for run in cell.runs:
            value = REACHED[row.partition(":")[0]] + 0.04 * run.seed
            if (column.partition(":")[0], run.seed) == ("fmnist/iid", 1):
                if row.startswith("fedmr"):
                    finish(results, run, state="diverged", meta=meta)
                if not row.startswith("fedavg"):
                    continue
            finish(results, run, records(value), final={"test": {"accuracy": value}}, meta=meta)
    counts = {"class_names": [f"cat{text}", "dog"], "attribute_names": [], "counts": [[3, 1], [0, 5], [2, 2]]}
    place = folder / "partitions" / PARTITION
    place.mkdir(parents=True)
    (place / "statistics.json").write_text(json.dumps(counts))


def packed_cells(page: Path) -> dict[str, str]:
    """The packed details of each cell of a page."""
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return dict(json.loads(data)["cells"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    fill(folder, select(spec_called(NAME), TableQuery(**CHOICE)))
    tables = folder / "tables" / "quick"
    tables.mkdir(parents=True)
    for name in (NAME, "fedmr_table1.wide", "fedmr_table2", "overhead"):
        (tables / f"{name}.csv").write_text("selection,seconds\nPOW-D,1.25\n")
    assert report.main([f"results={folder}", *(f"{key}={value}" for key, value in CHOICE.items())]) == 0
    return folder


@pytest.fixture
def page(browser: Page, folder: Path) -> Page:
    browser.open(folder / "report" / "index.html")
    return browser


def column(page: Page, number: int = 2) -> list[str]:
    return page.texts(f"#{NAME} tbody tr > :nth-child({number})")


def choose(page: Page, view: str) -> None:
    page.one(f"#{NAME} input[value={view}]").click()


def test_overview_and_table(page: Page) -> None:
    """Of 30 runs one diverged and one is missing; the order of the three methods differs from the published one."""
    assert "28 of 30 runs done in 1 table" in page.one(".lead").text
    assert "not the papers’" in page.one(".callout").text
    (row,) = page.texts("#overview tbody tr")
    assert "28 of 30" in row and row.endswith("1 missing, 1 diverged")
    command = f"python -m benchmark table name={NAME} preset=quick seeds=2"
    assert any(command in text for text in page.texts(".missing code"))
    assert column(page) == MEASURED
    assert page.texts(".results h2") == ["Partially class-disjoint data", "overhead"]
    assert page.texts("#overhead tr") == ["selection seconds", "POW-D 1.2500"]
    assert column(page, 6) == ["42.00 ± 2.83", "60.00 n = 1 of 2: 1 missing", "50.00 n = 1 of 2: 1 diverged"]
    assert page.errors() == []


def test_views(page: Page) -> None:
    """The sign of a difference is in the text, not in the colour alone."""
    shown = {}
    for view in ("published", "difference", "rank", "measured"):
        choose(page, view)
        shown[view] = column(page)
    assert shown == {
        "published": ["67.29", "71.01", "75.51"],
        "difference": ["▼ −25.29", "▼ −9.01", "▼ −23.51"],
        "rank": ["3 ( published 3)", "1 ( published 2)", "2 ( published 1)"],
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


def test_filters(page: Page) -> None:
    page.one(f"#{NAME} .rows").send_keys("dyn, fedavg")
    assert column(page, 1) == ["FedAvg", "FedDyn"]
    page.one(f"#{NAME} .columns").send_keys("C2")
    assert page.texts(f"#{NAME} thead tr:last-child th") == ["Method", "P5C2", "P10C2"]
    assert page.one(f"#{NAME} .groups th").get_attribute("colspan") == "2"
    assert page.one("#live").get_attribute("textContent") == "2 rows and 2 columns are shown"


def test_theme(page: Page) -> None:
    """The system's colours at first; the button overrules them, and paper is white."""

    def background() -> int:
        script = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        return sum(page.run(script))

    assert background() > 600
    page.look(scheme="dark")
    assert background() < 150 and page.one("#theme").text == "Light"
    page.one("#theme").click()
    assert background() > 600 and page.one("#theme").text == "Dark"
    page.look(scheme="light")
    page.one("#theme").click()
    assert background() < 150
    page.look(media="print")
    assert background() > 600
    assert not page.one(".bar").is_displayed() and not page.one(".tools").is_displayed()
    assert page.one(f"#{NAME} table").is_displayed()


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
    origin = ("commit\nabc", "host; cpu: x; 1 thread(s)", PARTITION, "/seed1")
    assert all(words in text for words in ("method.client.fedmr.mu2", "1,234", *origin))
    assert text.count("runs/") == 2
    page.one("#panel select").send_keys("seed 1")
    assert len(page.all("#panel svg.plot")) == 6
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": permissions})
    page.one("#panel .copy").click()
    wait_until(lambda: page.one("#panel .copy").text == "Copied", "the command is copied")
    copied = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied == (
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
    assert "seed 1: diverged" in text and "Carry out what is missing" in text
    assert page.one("#panel .command code").text.endswith(f"seeds=2 results={folder}")
    page.run("location.hash = arguments[0]", cell_name(spec_called(NAME), "fedmr", "fmnist/avg"))
    wait_until(lambda: "Average of" in page.one("#panel").text, "the panel of the average")
    page.one("#panel li a").click()
    wait_until(lambda: page.texts("#panel-title") == ["FedMR · FMNIST P5C2"], "the panel of its first column")


def test_on_a_phone_nothing_is_cut_off(page: Page) -> None:
    page.look(390)
    page.one(f"#{NAME} tbody td a").click()
    page.wait("#panel .copy")
    for name in ("document.documentElement", "document.getElementById('panel')"):
        assert page.run(f"const node = {name}; return node.scrollWidth <= node.clientWidth + 1")


def test_mean_ranks(page: Page) -> None:
    """FedMR is before FedAvg in 9 of 10 blocks (5 columns, 2 seeds), as it diverged in one. FedDyn lacks a run."""
    assert not page.all(f"#{NAME} figure")
    page.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.run("document.querySelector('figure.ranks').scrollIntoView()")
    label = page.wait(f"#{NAME} figure svg").get_attribute("aria-label")
    assert label == "Mean ranks over 10 blocks: FedMR 1.10, FedAvg 1.90"
    assert "as runs are missing: FedDyn" in page.one(f"#{NAME} figcaption").text


def test_names_for_screen_readers(page: Page) -> None:
    page.one(f"#{NAME} tbody td a").click()
    page.wait("#panel .copy")
    nameless = """
        const named = (node) => node.ariaLabel || node.textContent.trim() || node.labels?.length;
        const controls = [...document.querySelectorAll("a, button, input, select, summary, svg.plot")];
        const lost = controls.filter((node) => !named(node));
        return [...lost, ...document.querySelectorAll("th:not([scope])"),
          ...[...document.querySelectorAll("table")].filter((table) => !table.caption),
          ...[...document.querySelectorAll("[id]")].filter((n, k, all) => all.findIndex((m) => m.id === n.id) !== k)]
          .map((node) => node.outerHTML.slice(0, 200));"""
    assert page.run(nameless) == []


def hostile(part: TableSpec) -> TableSpec:
    """The table with names that are markup; patterns of its overrides still match their beginnings."""
    rows, columns, overrides = [], [], []
    for row in part.rows:
        names = {"key": f"{row.key}:{HOSTILE}", "label": f"{row.label} {HOSTILE}"}
        rows.append(row.model_copy(update=names))
    for column in part.run_columns:
        names = {"key": f"{column.key}:{HOSTILE}"} | dict.fromkeys(("label", "group", "source"), HOSTILE)
        columns.append(column.model_copy(update=names))
    for entry in part.overrides:
        patterns = {what: getattr(entry, what).replace(",", "*,") + "*" for what in ("row", "column")}
        overrides.append(entry.model_copy(update=patterns))
    cells = {"rows": tuple(rows), "columns": tuple(columns), "overrides": tuple(overrides)}
    return part.model_copy(update={"title": HOSTILE, "caption": HOSTILE, **cells})


def test_names_are_text(browser: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of methods and columns, classes, hosts, commits, titles, folders and captions are no markup."""
    folder = tmp_path / "it's <b>"
    query = TableQuery(results=folder, **CHOICE)
    spec = hostile(select(spec_called(NAME), query))
    fill(folder, spec, HOSTILE)
    monkeypatch.setattr(report, "plans_of", lambda query: [(spec, plan(spec, "quick", range(2)))])
    browser.open(write_report(query, RunIndex(ResultsFolder(folder))))
    texts = "[...document.querySelectorAll('tbody th, thead th button')].map((n) => n.textContent)"
    shown = browser.run(f"return {texts}")
    assert f"FedAvg {HOSTILE}" in shown and HOSTILE in shown
    browser.one(f"#{NAME} tbody td a").click()
    browser.wait("#panel .copy")
    title = browser.run("return document.getElementById('panel-title').textContent")
    assert title == f"FedAvg {HOSTILE} · {HOSTILE} {HOSTILE}"
    panel = browser.run("return document.getElementById('panel').textContent")
    assert f"abc{HOSTILE}" in panel and f"host{HOSTILE}" in panel
    words = shlex.split(browser.run("return document.querySelector('#panel code').textContent"))
    assert f"rows=fedavg:{HOSTILE}" in words
    assert browser.run("return [window.hurt, document.images.length]") == [None, 0]
    assert browser.errors() == []


def test_ten_thousand_runs(browser: Page, folder: Path, tmp_path: Path) -> None:
    """139 methods, 24 columns, 3 seeds: 10,008 runs. The last cell is there, and opens.

    No table has published numbers: the page says nothing of them, and calls the table by its short name.
    """
    base = spec_called(NAME)
    row, column = base.row("fedavg"), base.run_columns[0]
    rows = tuple(row.model_copy(update={"key": f"m{k}", "label": f"Method {k}"}) for k in range(139))
    columns = tuple(column.model_copy(update={"key": f"c{k}", "label": f"Column {k}"}) for k in range(24))
    spec = base.model_copy(update={"rows": rows, "columns": columns, "overrides": (), "published": ()})
    spec = spec.model_copy(update={"paper": "mine", "title": "How many methods are there?"})
    runs = tuple(CellRun(seed, RunState.DONE, 0.5 + seed / 100, f"runs/x/seed{seed}") for seed in range(3))
    results = build_results(spec, "quick", {(r.key, c.key): Cell("ok", runs) for r in rows for c in columns})
    details = packed_cells(folder / "report" / "index.html")["fedmr_table1/fedmr/fmnist%2Fp5c2"]
    names = [cell_name(spec, r.key, c.key) for r in rows for c in columns]
    data = {"cells": dict.fromkeys(names, details), "partitions": {}}
    path, counts = tmp_path / "large.html", Counter({RunState.DONE: 3 * len(names)})
    sections = [Section(results, as_table(results), "")]
    path.write_text(render("quick", counts, sections, [], [], data, ".."))
    browser.open(path)
    assert "10,008 of 10,008 runs done" in browser.one(".lead").text
    assert browser.run("return document.querySelectorAll('td a').length") == 139 * 24
    assert browser.texts("nav a") == ["mine"]
    assert "ublished" not in browser.one("main").text and "paper" not in browser.one("main").text
    browser.run("location.hash = arguments[0]", names[-1])
    assert browser.wait("#panel-title").text == "Method 138 · FMNIST Column 23"
    browser.wait("#panel .copy")
    assert browser.errors() == []


def test_the_command_of_a_cell_gives_the_same_bits(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both seeds' records and models, in a results folder that did not exist before."""
    words = ["table", "name=fedsdc_table2", "rows=fedsdc_m1", "seeds=1", "launcher=inline"]
    assert cli(*words).out.endswith("report: results/report/index.html\n")
    cells = packed_cells(tmp_path / "results" / "report" / "index.html")
    packed = base64.b64decode(cells["fedsdc_table2/fedsdc_m1/niid1"])
    command = json.loads(zlib.decompress(packed, wbits=-15))["command"]
    monkeypatch.setattr("benchmark.cli.table.report_of_all", lambda *_: "")  # takes seconds, is not looked at
    program, *words = shlex.split(command.removeprefix("python -m "))
    assert program == "benchmark" and cli(*words, "launcher=inline").code == 0
    first, second = (ResultsFolder(tmp_path / name) for name in ("results", "repeated"))
    assert first.run_keys() == second.run_keys() != []
    for key in first.run_keys():
        one, two = (results.run(key).status() for results in (first, second))
        assert (
            one and two and one.model_sha256 == two.model_sha256 and one.records_sha256 == two.records_sha256
        )
