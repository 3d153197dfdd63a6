"""The page of methods: up to date, and complete."""

from pathlib import Path
from typing import Any

from benchmark.cli.document import PAGE, algorithms, main
from benchmark.config.compose import group_names


def test_page_is_up_to_date(capsys: Any) -> None:
    assert main(["check"]) == 0, "run: python -m benchmark document"


def test_every_configured_method_is_in_the_table() -> None:
    found = algorithms()
    named = {name for one in found for name in one.configured}
    # What combines two algorithms belongs to none of them alone.
    assert {name for name in group_names("method") if "+prototypes" not in name} <= named
    assert {name for name in group_names("selection") if name != "auto"} <= named
    by_name = {one.name: one for one in found}
    scaffold = by_name["SCAFFOLD"]
    title = "Stochastic Controlled Averaging for Federated Learning"
    assert scaffold.paper == f"[{title}](https://arxiv.org/abs/1910.06378)"
    assert scaffold.path == "methods/scaffold.py"
    assert (scaffold.configured, scaffold.checks) == (("scaffold",), "golden, toy")
    assert by_name["ISFL"].checks == "toy, by hand"
    assert by_name["FedAdam, FedYogi, FedAdagrad"].configured == ("fedadagrad", "fedadam", "fedyogi")


def test_check_notices_a_change(cli: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("| SCAFFOLD |", "| Scaffold |"))
    code, _, err = cli("document", "check", f"out={page}")
    assert code == 1 and "out of date" in err
    assert cli("document", f"out={page}").code == 0
    assert page.read_text() == PAGE.read_text()
