"""The documentation: made pages, examples that are carried out, and what pages name."""

import re
import runpy
import shlex
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml
from nbclient import NotebookClient

from benchmark.papers.evidence import Claim
from benchmark.reports.statistics import Difference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

Made = dict[str, Any]


@pytest.fixture(scope="module")
def generate() -> Made:
    """The functions of the script that makes pages."""
    return runpy.run_path(str(DOCS / "generate.py"), run_name="generate")


# Pages that are made -----------------------------------------------------------------------------


def test_the_table_of_methods_is_up_to_date_and_complete(generate: Made) -> None:
    from benchmark.config.compose import group_names

    text = (DOCS / "methods.md").read_text()
    assert text == generate["methods"](), "run: python docs/generate.py"
    files = {
        file for line in text.splitlines() for file in re.findall(r"`([^`]+)`", line.rpartition(" | ")[2])
    }
    assert {*group_names("method"), *group_names("selection")} - {"auto"} <= files
    paper = "[Stochastic Controlled Averaging for Federated Learning](https://arxiv.org/abs/1910.06378)"
    assert f"| SCAFFOLD | {paper} | Control variates against client drift. | `scaffold` |" in text


def test_the_tables_of_differences_are_up_to_date(generate: Made) -> None:
    text = (DOCS / "fidelity.md").read_text()
    assert text == generate["fidelity"](), "run: python docs/generate.py"
    assert len(text.split()) <= 6000


def test_the_tables_of_results_are_up_to_date_and_equal_those_of_the_command(generate: Made) -> None:
    text = (DOCS / "results.md").read_text()
    assert text == generate["evidence"].results(), "run: python docs/generate.py"
    prose = " ".join(line for line in text.splitlines() if not line.startswith("|"))
    assert len(prose.split()) <= 900
    # By hand: others' seeds of the first line are 1.8762, 2.7309 and 3.3617 apart, mean 2.6563, SD 0.7456, and
    # 4.3027 x 0.7456 / sqrt(3) = 1.852. The paper prints 94.01 and 92.00.
    first = generate["evidence"].claims()["feddiverse"][0]
    assert round(first.others.mean, 4) == 2.6563 and first.published.mean == 2.01
    assert first.others.interval == pytest.approx((0.804, 4.508), abs=1e-3)
    both_worse = Claim("both worse", Difference(-3.0, 3, 0.2, 2), None, Difference(-3.0, 3, 0.2, 2))
    assert generate["evidence"].table([both_worse]).endswith("| worse, as published |")
    # `table show=claims` wrote this line from the runs themselves.
    claims = pd.read_csv(ROOT / "results" / "small" / "claims.csv").set_index(
        ["table", "row", "base", "column"]
    )
    line = claims.loc[("fedsdc_table1", "fedsdc", "isfl", "iid")]
    (found,) = (one for one in generate["evidence"].claims()["fedsdc"] if "ISFL, Acevedo" in one.label)
    for name, difference in ("", found.here), ("published_", found.published):
        assert difference.mean == pytest.approx(line[f"{name}difference"], abs=2e-6)
        limits = line[f"{name}difference_low"], line[f"{name}difference_high"]
        assert difference.interval == pytest.approx(limits, abs=2e-6)


def test_a_difference_across_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the page: the values that were chosen minus the defaults, as results/small/README.md has it."""
    page = (ROOT / "results" / "README.md").read_text()
    (words,) = re.findall(r"^python (scripts/difference\.py .*)$", page, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", words.split())
    runpy.run_path("scripts/difference.py", run_name="__main__")
    assert capsys.readouterr().out == "-7.08 [-11.87, -2.29]\n"
    assert "by 7.08\n  [2.29, 11.87] points" in (ROOT / "results" / "small" / "README.md").read_text()


def test_the_numbers_in_the_text_of_the_leaderboard(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "results" / "leaderboard" / "README.md").read_text()
    runpy.run_path(str(ROOT / "scripts" / "leaderboard_numbers.py"), run_name="__main__")
    default, tuned, above, *between = capsys.readouterr().out.splitlines()
    assert default == "default: 226 intervals, without zero 92, after Holm 8"
    assert "Of the 226 intervals" in page and "92 do, and eight of them" in page
    assert tuned == "tuned: 85 intervals, without zero 28, after Holm 4"
    assert "Of the 85 intervals" in page and "28 do, and four of them" in page
    assert above == "above zero by default: 13, in both tracks: 5, tuned: 5"
    assert len(between) == 4 and all(line.split(": ")[1] in page for line in between)


def test_the_tables_of_the_leaderboard_are_up_to_date(generate: Made) -> None:
    evidence = generate["evidence"]
    assert evidence.LEADERBOARD.read_text() == evidence.leaderboard(), "run: python docs/generate.py"
    ranks = pd.DataFrame({
        "method": ["FedAvg", "FedAvg without momentum", "A", "B", "C", "D", "E", "F"],
        "X": [50.0, 48.2, 52.0, 51.0, 47.0, 49.0, 51.0, None],
        "X n": [None, None, None, None, None, None, "2 of 3", None],
        "X difference": [None, None, 2.0, 1.0, -3.0, -1.0, None, None],
        "X low": [None, None, 1.5, -0.5, -3.5, -1.5, None, None],
        "X high": [None, None, 2.5, 2.5, -2.5, -0.5, None, None],
        "X holm low": [None, None, 1.0, -1.5, -4.0, -2.5, None, None],
        "X holm high": [None, None, 3.0, 3.5, -2.0, 0.5, None, None],
    })  # fmt: skip
    *_, line = evidence.above_and_below(ranks).splitlines()
    cells = [
        "X",
        "50.0 %",
        "48.2 %",
        r"A\* +2.0 [1.5, 2.5]",
        r"C\* -3.0 [-3.5, -2.5]<br>D -1.0 [-1.5, -0.5]",
        "E, F",
    ]
    assert line.replace("\u00a0", " ") == f"| {' | '.join(cells)} |"
    tuned, *_ = evidence.above_and_below(ranks.drop(index=1)).splitlines()
    assert tuned == "| data set | FedAvg | above FedAvg | below FedAvg | diverged |"


def test_the_page_of_a_method_has_its_values_and_differences(generate: Made) -> None:
    pages = {one.path.stem: generate["method_page"](one) for one in generate["algorithms"]()}
    assert "`method=fedmr_lite10`:" in pages["fedmr"] and "mu1_code: 0.01" in pages["fedmr"]
    assert "Switch: `method.client.scaffold.control_scale`" in pages["scaffold"]
    assert "FedDyn" not in pages["scaffold"]


def test_every_setting_and_every_command_is_on_a_page(generate: Made) -> None:
    commands, configuration = generate["commands"](), generate["configuration"]()
    shown = "number of seeds, for all presets or by preset"
    assert f"| `seeds` | integer > 0, or a mapping | `3` | {shown} |" in configuration
    assert re.search(r"\| `train.lr` \| number > 0 \| `0.05` \| .+ \|", configuration)
    assert "## table\n" in commands and "columns=KEY,PATTERN*,..." in commands and "--multirun" in commands


# Examples that are carried out -------------------------------------------------------------------


def example(name: str) -> str:
    """The block of code that follows the mention of the file ``name``."""
    text = "".join(page.read_text() for page in PAGES)
    block = re.search(rf"`{re.escape(name)}`[^`]*?:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block, f"no example {name}"
    return block[1]


@pytest.fixture
def run_example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Import a Python example under a name of its own, until the end of the test."""

    def run(name: str) -> None:
        module = types.ModuleType(f"example_{Path(name).stem}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(example(name), name, "exec", dont_inherit=True), module.__dict__)

    return run


def test_example_of_a_method() -> None:
    """The pages show the files of docs/template, which tests/test_own_repository.py runs."""
    ours = ("models/softmax_regression.py", "conf/model/softmax_regression.yaml", "metrics/kappa.py")
    for name in ("methods/logit_squeezing.py", "conf/method/logit_squeezing.yaml", *ours):
        assert example(name) == (DOCS / "template" / name).read_text()
    shown = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert set(shown.splitlines()) <= set(example("methods/logit_squeezing.py").splitlines())


def test_example_of_a_data_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_example: Callable[[str], None]
) -> None:
    from datasets import load, names
    from datasets.core import registry

    names()
    monkeypatch.setattr(registry.ENTRIES, "found", dict(registry.ENTRIES.found))
    run_example("datasets/stripes.py")
    config = yaml.safe_load(example("conf/dataset/stripes.yaml"))
    data = load(config["name"], config["options"], tmp_path / "raw", tmp_path / "cache")
    assert len(data.train) == len(data.test) == 200 and data.classes == ("row", "column")
    full_row = (np.asarray(data.train.images) == 255).all(axis=3).any(axis=(1, 2))
    assert (full_row == (data.train.labels == 0)).all()


def test_example_of_a_partition(monkeypatch: pytest.MonkeyPatch, run_example: Callable[[str], None]) -> None:
    from partitions import Population, make, names
    from partitions.core import registry

    names()
    monkeypatch.setattr(registry.SCHEMES, "found", dict(registry.SCHEMES.found))
    run_example("partitions/unequal.py")
    config = yaml.safe_load(example("conf/partition/unequal.yaml"))
    scheme = make(config.pop("name"), {key: value for key, value in config.items() if key != "seed"})
    clients = scheme.split(Population(np.zeros(100, dtype=np.int64), 1), np.random.default_rng(0))
    assert len(clients) == 10
    assert sorted(np.concatenate(clients)) == list(range(100))


def test_example_of_a_table(tmp_path: Path) -> None:
    from benchmark.experiments.tables import load_spec

    name = "conf/table/proximal_term.yaml"
    path = tmp_path / Path(name).name
    path.write_text(example(name))
    overrides = load_spec(path).cell_settings("fedprox_0.1", "p5c2", "quick")
    assert overrides is not None
    assert overrides["method"] == {"name": "fedprox", "client": {"fedprox": {"mu": 0.1}}}
    assert overrides["partition"]["clients"] == 5


@pytest.mark.slow
def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes the outputs that are shown, and leaves nothing in its folder.

    Numbers may differ a little, as another processor gives other last bits.
    """
    for name in ("FEDTABLES_CACHE", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows pictures
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = sorted(DOCS.iterdir())
    book = nbformat.read(DOCS / "first_run.ipynb", as_version=4)
    shown = [outputs(cell) for cell in book.cells]
    resources = {"metadata": {"path": str(DOCS)}}
    NotebookClient(book, timeout=900, kernel_name="python3", resources=resources).execute()
    assert len(shown) > 5
    for cell, before_it in zip(book.cells, shown, strict=True):
        for (kinds, words, numbers), (new_kinds, new_words, new_numbers) in zip(
            before_it, outputs(cell), strict=True
        ):
            assert (new_kinds, new_words) == (kinds, words), cell.source
            assert new_numbers == pytest.approx(numbers, rel=0.05, abs=0.02), cell.source
    assert sorted(DOCS.iterdir()) == before


def outputs(cell: nbformat.NotebookNode) -> list[tuple[list[str], list[str], list[float]]]:
    """Kinds, words and numbers of the outputs of a cell; lines about progress do not count."""
    found = []
    for output in cell.get("outputs", []):
        if output["output_type"] != "stream":
            words = re.findall(r"[^\s()\[\],']+", output["data"]["text/plain"])
            numbers = [float(word) for word in words if re.fullmatch(r"-?\d+(\.\d+)?", word)]
            texts = [word for word in words if not re.fullmatch(r"-?\d+(\.\d+)?", word)]
            found.append((sorted(output["data"]), texts, numbers))
    return found


# What pages name ---------------------------------------------------------------------------------


def code_lines(page: Path) -> list[str]:
    """The lines of a page's fenced blocks of code; a command that goes on after a backslash is one line."""
    parts = re.split(r"^```\w*\n", page.read_text(), flags=re.MULTILINE)
    return [line for block in parts[1::2] for line in re.sub(r"\\\n *", "", block).splitlines()]


def test_the_commands_that_pages_show_exist() -> None:
    from benchmark.cli import COMMANDS

    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"^([a-z0-9-]+):|^([A-Z]+) +\?=", makefile, re.MULTILINE))
    words = {word for pair in known for word in pair}
    for line in (line for page in PAGES for line in code_lines(page)):
        if line.startswith(("python -m benchmark ", "fedtables ")):
            assert line.removeprefix("python -m ").split()[1] in COMMANDS, line
        elif line.startswith("make "):
            given = [word.partition("=")[0] for word in shlex.split(line, comments=True)[1:]]
            assert {word for word in given if not word.startswith("-")} <= words, line


def test_the_links_of_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 10 and [link for link in links if not (ROOT / link).exists()] == []


def test_the_runs_that_pages_show_are_carried_out(tmp_path: Path) -> None:
    """A run, and the sweep of four that contains it: no run is carried out twice."""
    from benchmark.__main__ import main

    shown = [line for line in code_lines(DOCS / "table.md") if "train.rounds=2" in line and "digits" in line]
    for line in shown:
        sweep = ["launcher=inline"] if " -m " in line.partition("benchmark")[2] else []
        assert main([*shlex.split(line)[3:], f"paths.results={tmp_path}", *sweep]) == 0
    finished = [path.parent.name for path in (tmp_path / "runs").rglob("result.json")]
    assert sorted(finished) == ["seed0", "seed0", "seed0", "seed1", "seed1"]
