"""A real Chromium without a display, and no network in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync"
).split()

SHOWN = """[...document.querySelectorAll(arguments[0])]
    .filter(found => found.checkVisibility({visibilityProperty: true}))"""
"""Elements that match a selector, found and looked at in one step, as the page may be redrawn at any time."""

NAMELESS = """
    const named = (node) => node.ariaLabel || node.textContent.trim() || node.labels?.length;
    const controls = [...document.querySelectorAll("a, button, input, select, summary, svg.plot")];
    const lost = controls.filter((node) => !named(node));
    return [...lost, ...document.querySelectorAll("th:not([scope])"),
      ...[...document.querySelectorAll("table")].filter((table) => !table.caption),
      ...[...document.querySelectorAll("[id]")].filter((n, k, all) => all.findIndex((m) => m.id === n.id) !== k)]
      .map((node) => node.outerHTML.slice(0, 200));"""
"""Controls without a name, tables without a caption, headings without a scope, and ids that are there twice."""


class Page:
    """What a test does with the page in the browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, path: Path, address: str = "") -> None:
        """Load a file afresh, in light colours and a window of 1,280 pixels, with empty storage."""
        self.driver.get("about:blank")
        self.look()
        self.driver.get(path.as_uri() + address)
        self.run("try { localStorage.clear() } catch {}")

    def look(self, width: int = 1280, **features: str) -> None:
        """Set the width of the window and what media queries see; the page has heard of both at its next frame."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = features.pop("media", "")
        known = {"prefers-color-scheme": features.get("scheme", "light")}
        pairs = [{"name": name, "value": value} for name, value in known.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": pairs})
        self.driver.execute_async_script("requestAnimationFrame(arguments[0])")

    def run(self, script: str, *words: Any) -> Any:
        """The value that a script returns."""
        return self.driver.execute_script(script, *words)

    def one(self, selector: str) -> WebElement:
        """The first element that matches."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements that match and are shown."""
        return self.run(f"return {SHOWN}", selector)

    def texts(self, selector: str) -> list[str]:
        """The visible text of each of them, on one line."""
        script = f"return {SHOWN}.map(found => found.innerText)"
        return [" ".join(text.split()) for text in self.run(script, selector)]

    def wait(self, selector: str) -> WebElement:
        """The first element that matches, once it is shown."""
        wait_until(lambda: self.all(selector), selector)
        return self.all(selector)[0]

    def errors(self) -> list[str]:
        """What the browser has complained of since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One browser for all tests; skips them where there is none."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip("no Chromium: install Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for flag in [*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    yield Page(driver)
    driver.quit()
