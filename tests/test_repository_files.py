"""The files beside the code: citation, containers, hooks before a commit, forms for issues."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def content(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_citation() -> None:
    """The required fields of CFF 1.2.0; its references are the papers of the README, by title, year and venue."""
    cited = content("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The FedTables authors"}]
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    papers = re.findall(r"^\| `fed\w+` \| (.+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [paper["title"] for paper in cited["references"]] == [title for title, _ in papers]
    for paper, (_, venue) in zip(cited["references"], papers, strict=True):
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert str(paper["year"]) in venue
        assert all(set(author) == {"given-names", "family-names"} for author in paper["authors"])
        if paper["type"] == "conference-paper":
            assert paper["conference"]["name"] == venue
        else:
            assert paper["journal"]
