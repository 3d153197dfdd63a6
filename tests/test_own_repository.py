"""docs/template, copied to a folder of its own, as `FEDTABLES_PATH` names it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "docs" / "template"

Call = Callable[..., subprocess.CompletedProcess[str]]
CODE = """
from benchmark.experiments.tables import find_specs
print(*(spec.name for spec in find_specs() if "logit_squeezing" in [row.key for row in spec.rows]))
"""
ASKED = """
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import find_specs
(spec,) = (spec for spec in find_specs() if spec.name == "agreement")
print("metrics:", *{str(list(run.evaluation.metrics)) for cell in plan(spec, "quick").values() for run in cell.runs})
"""
RUN = ("run", "method=logit_squeezing", "preset=quick", "train.rounds=1", "paths.results=results")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the template in a git repository of its own, with a commit."""
    folder = tmp_path / "mine"
    shutil.copytree(TEMPLATE, folder)
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture
def fedtables(repository: Path, tmp_path: Path) -> Call:
    """``fedtables(words)``: the command in a folder that is neither the checkout nor the repository."""
    place = tmp_path / "elsewhere"
    place.mkdir()

    def call(*words: str, module: str = "benchmark", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "FEDTABLES_PATH": str(repository)} | variables
        command = [sys.executable, *(["-m", module] if module else []), *words]
        return subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )

    return call


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def made(place: Path) -> tuple[dict[str, str], list[str]]:
    """(commits of the repositories, files that differed from all commits) of the run's code."""
    (path,) = place.glob("elsewhere/results/runs/*/seed0/result.json")
    about = json.loads(path.read_text())["made"]
    note = place / "elsewhere" / "results" / "code" / about["code"] / "note.json"
    lines = json.loads(note.read_text())["diff"].splitlines()
    return about["repositories"], [line for line in lines if line.startswith("diff --git")]


@pytest.mark.slow
def test_a_run_notes_the_commit_of_the_repository_and_starts_again_when_its_code_changed(
    fedtables: Call, repository: Path, tmp_path: Path
) -> None:
    done = fedtables(*RUN)
    assert done.returncode == 0, done.stderr
    commit = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = "diff --git a/methods/logit_squeezing.py b/methods/logit_squeezing.py"
    commits, diff = made(tmp_path)
    assert commits == {str(repository): commit} and changed not in diff
    method = repository / "methods" / "logit_squeezing.py"
    method.write_text(method.read_text().replace(".square()", ".pow(2)"))
    done = fedtables(*RUN)
    assert done.returncode == 0 and "code of methods/logit_squeezing.py" in done.stdout, done.stderr
    assert changed in made(tmp_path)[1]


def test_a_fault_of_the_method_names_hook_file_and_line(
    fedtables: Call, repository: Path, tmp_path: Path
) -> None:
    """The line is in a function that the hook calls. What the error says in further lines comes last."""
    method = repository / "methods" / "logit_squeezing.py"
    faulty = '\n    def _squared(self, batch: Batch) -> float:\n        raise RuntimeError("no\\nsquare")\n'
    text = method.read_text().replace("batch.logits.square()", "self._squared(batch)") + faulty
    method.write_text(text)
    done = fedtables(*RUN)
    (log,) = tmp_path.glob("elsewhere/results/runs/*/.seed0-*/log.txt")
    line = f'methods/logit_squeezing.py:{len(text.splitlines())}: `raise RuntimeError("no\\nsquare")`'
    where = f"(in LogitSqueezing.loss, {line}; full log: {log.relative_to(tmp_path / 'elsewhere')})"
    assert done.returncode == 1
    assert (
        f"failed: results/runs/{log.parent.parent.name}/seed0: RuntimeError: no {where}\nsquare"
        in done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr and "Traceback" in log.read_text()


@pytest.mark.parametrize("with_init", [False, True])
def test_its_selection_model_and_metric_in_a_run(
    with_init: bool, fedtables: Call, repository: Path, tmp_path: Path
) -> None:
    """Their files are part of the run's origin and of the code that is kept; others may have an ``__init__.py``."""
    names = ("methods/selection/size_softmax.py", "models/softmax_regression.py", "metrics/kappa.py")
    if with_init:
        for name in names:
            (repository / name).with_name("__init__.py").touch()
    words = ("selection=size_softmax", "model=softmax_regression", "evaluation.metrics=[kappa,auroc]")
    done = fedtables(*RUN, *words, "train.clients_per_round=2")
    assert done.returncode == 0 and ", kappa 0." in done.stdout, done.stderr
    assert "micro_f1" not in done.stdout
    (path,) = tmp_path.glob("elsewhere/results/runs/*/seed0/result.json")
    result = json.loads(path.read_text())
    assert set(names) <= result["origin"]["code"].keys()
    kept = tmp_path / "elsewhere" / "results" / "code" / result["made"]["code"]
    assert all(list(kept.glob(f"*/{name}")) for name in names)


def test_a_table_asks_for_its_metric(fedtables: Call, repository: Path) -> None:
    table = repository / "conf" / "table" / "squeezing.yaml"
    text = table.read_text().replace("metric: accuracy", "metric: kappa")
    table.with_name("agreement.yaml").write_text(text)
    assert "metrics: ['kappa']" in fedtables("-c", ASKED, module="").stdout
    table.with_name("agreement.yaml").write_text(text.replace("kappa", "kapa"))
    assert "Did you mean 'kappa'?" in refused(fedtables("table", "name=agreement"))


@pytest.mark.slow
def test_the_table_of_the_repository_with_workers(fedtables: Call, tmp_path: Path) -> None:
    done = fedtables("table", "name=squeezing", "seeds=1", "columns=iid", "workers=2")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "elsewhere" / "results" / "tables" / "quick" / "squeezing_part.md").read_text()
    assert "Logit squeezing, lam 0.1" in text


def test_the_method_has_a_row_in_every_table_1(fedtables: Call) -> None:
    done = fedtables("-c", CODE, module="")
    tables = {"fedld_table1", "fedsdc_table1", "feddiverse_table1", "fedmr_table1"}
    tables |= {"leaderboard", "leaderboard_tuned"}
    assert tables <= set(done.stdout.split()), done.stderr


@pytest.mark.slow
def test_its_test(fedtables: Call, repository: Path) -> None:
    done = fedtables(
        str(repository / "tests"), "-q", "-p", "no:cacheprovider", module="pytest", FEDTABLES_PATH=""
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("methods/fedprox.py", ("run", "method=fedprox")),
        ("conf/table/fedmr_table1.yaml", ("table", "name=fedmr_table1")),
        ("conf/figure/fedmr_figure4.yaml", ("figure", "paper=fedmr", "figure=4")),
    ],
)
def test_a_name_in_two_places(fedtables: Call, repository: Path, file: str, words: tuple[str, ...]) -> None:
    (repository / file).parent.mkdir(exist_ok=True)
    shutil.copyfile(ROOT / file, repository / file)
    message = refused(fedtables(*words))
    assert str(repository / file) in message and f"{file} " in message.replace(str(repository / file), "")
