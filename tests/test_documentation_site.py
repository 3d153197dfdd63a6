"""The site of the documentation, built with --strict, in a real browser as a file."""

from pathlib import Path

from chromium import Page, browser
from mkdocs.commands.build import build
from mkdocs.config import load_config
from processes import wait_until

from benchmark.paths import ROOT

__all__ = ["browser"]


def test_search_works_without_a_server(browser: Page, tmp_path: Path) -> None:
    """From a page in a folder that is made from the code, and no script of the site is loaded from a server."""
    build(load_config(str(ROOT / "docs/theme/mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    browser.open(tmp_path / "methods" / "scaffold.html")
    browser.one(".md-search__input").send_keys("learning curves")
    titles = ".md-search-result__article h1"
    wait_until(lambda: "Reading the report" in browser.texts(titles), "the search's results")
    assert not browser.run(
        "return [...document.scripts].filter(({ src }) => !src.startsWith('file:') && src).length"
    )
    assert browser.errors() == []
