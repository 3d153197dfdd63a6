"""Cells of the report that are picked to be compared: their curves, their settings, and the address that names them."""

from pathlib import Path

import pytest
from chromium import Page
from made_up_report import NAME
from processes import wait_until

AVG, MR = (f"{NAME}/{method}/fmnist%2Fp5c2" for method in ("fedavg", "fedmr"))
IID, AVERAGE = f"{NAME}/fedmr/fmnist%2Fiid", f"{NAME}/fedmr/fmnist%2Favg"


def address(page: Page) -> str:
    return str(page.run("return location.hash"))


def picked(page: Page) -> list[str]:
    return page.texts("#tray button")[:-2]


def open_comparison(page: Page, folder: Path, *names: str) -> None:
    page.open(folder / "report" / "index.html", f"#compare={','.join(names)}")
    page.wait("#panel .plot")


def test_pick_show_remove_clear(page: Page) -> None:
    """The address names the picked cells; it opens no panel before the button is pressed."""
    page.one("#pick").click()
    assert page.texts("#tray") == ["Click cells of any table."]
    for name in (AVG, MR):
        page.one(f"td a[href='#{name}']").click()
    assert address(page) == f"#compare={AVG},{MR}"
    assert picked(page) == ["FedAvg · FMNIST P5C2 ×", "FedMR · FMNIST P5C2 ×"]
    assert len(page.all("td a[aria-current]")) == 2 and not page.all("#panel")
    page.one("#curves").click()
    assert page.wait("#panel-title").text == "2 cells"
    page.one("#panel .close").click()
    assert address(page) == f"#compare={AVG},{MR}"
    page.one("#tray button").click()
    assert (picked(page), address(page)) == (["FedMR · FMNIST P5C2 ×"], f"#compare={MR}")
    page.one("#clear").click()
    assert (address(page), page.all("#tray"), page.all("td a[aria-current]")) == ("#overview", [], [])
    page.one(f"td a[href='#{AVG}']").click()  # opens the cell again
    assert page.wait("#panel-title").text == "FedAvg · FMNIST P5C2"
    assert page.errors() == []


def test_pick_in_the_panel_of_a_cell(page: Page) -> None:
    """The address is the cell's while its panel is open."""
    page.run("location.hash = arguments[0]", MR)
    page.wait("#add").click()
    assert page.one("#add").get_attribute("aria-pressed") == "true" and address(page) == f"#{MR}"
    page.one("#panel .close").click()
    wait_until(lambda: address(page) == f"#compare={MR}", "the panel has closed")


def test_address_that_was_sent(page: Page, folder: Path) -> None:
    """One line for each cell at rounds 0 and 2, a band from two seeds on; an average has no curves."""
    open_comparison(page, folder, AVG, IID, AVERAGE, "gone/fedavg/a")
    assert page.texts("#panel .seeds span") == [
        "FedAvg · FMNIST P5C2: 42.00 ± 2.83 (n = 2)",
        "FedMR · FMNIST IID: 50.00 (n = 1)",
        "FedMR · FMNIST Average: 50.00 (n = 1)",
    ]
    assert page.texts("#panel .gaps") == ["An average has no curves: FedMR · FMNIST Average."]
    accuracy, worst = page.all("#panel .plot")
    labels = [chart.get_attribute("aria-label") for chart in (accuracy, worst)]
    assert labels == [
        f"{kind} accuracy (%) of each picked cell over rounds" for kind in ("test", "worst-group")
    ]
    marks = {"line": 2, "area": 1}
    for mark, number in marks.items():
        assert len(accuracy.find_elements("css selector", f"g[aria-label={mark}] path")) == number
    assert len(accuracy.find_elements("css selector", "g[aria-label=dot] circle")) == 4
    page.one("#panel .close").click()
    assert page.texts("#tray .hint") == ["Cells of the address that are not on this page: 1."]


@pytest.mark.parametrize(
    ("outcome", "points"),
    [
        ("done", [[0, 2.0, 2**0.5], [4, 42.0, 8**0.5]]),  # the second seed has no round 2
        ("diverged", [[0, 1.0, None], [2, 20.0, None], [4, 40.0, None]]),
    ],
)
def test_mean_curve(page: Page, outcome: str, points: list[list[float]]) -> None:
    runs = [
        {"outcome": "done", "curves": {"accuracy": [[0, 1], [2, 20], [4, 40]]}},
        {"outcome": outcome, "curves": {"accuracy": [[0, 3], [4, 44]]}},
        {"outcome": "missing"},
    ]
    curve = page.run("return meanCurve(arguments[0], 'accuracy')", runs)
    shown = [[point["round"], point["mean"], point.get("spread")] for point in curve]
    assert shown == [pytest.approx(point) for point in points]


def test_settings_of_two_cells(page: Page, folder: Path) -> None:
    """Values and what set them; the two cells can be chosen among those that were picked."""
    open_comparison(page, folder, AVG, MR, IID)
    settings = "#panel section:last-child tbody tr"
    rows = page.texts(settings)
    assert "method.name fedavg conf/method/fedavg.yaml:2 fedmr conf/method/fedmr.yaml:2" in rows
    assert any(row.startswith("method.client.fedmr.mu2 – ") for row in rows)
    assert not any(row.startswith(("train.", "dataset.")) for row in rows)
    page.one("#panel select").send_keys("FedMR · FMNIST IID")
    wait_until(lambda: any(row.startswith("partition.") for row in page.texts(settings)), "another pair")
    of_method = [row for row in page.texts(settings) if row.startswith("method.")]
    assert [row.split()[0] for row in of_method] == ["method.client.fedmr.mu1_ratio"]  # the column sets it


def test_as_many_cells_as_colours(page: Page) -> None:
    page.one("#pick").click()
    for link in page.all("td a")[:8]:
        link.click()
    assert len(picked(page)) == 7
    assert page.texts("#tray .hint") == ["At most 7 cells fit into one plot."]
