"""Tracking: W&B gets every round once; and whatever breaks, training does not."""

from pathlib import Path

import pytest
from tiny_runs import STATEFUL, bits, folder_of, result_of, tiny
from tracked_runs import (
    by_round,
    history,
    inspect,
    merged,
    of_type,
    offline_files,
    wandb,
    wandb_environment,  # noqa: F401
)

from benchmark.config.schema import RunConfig
from benchmark.runs.execute import Launch, execute
from benchmark.runs.result_files import read_records
from benchmark.tracking import Wandb, sent_of


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A run of three rounds."""
    return tiny(tmp_path / "results", STATEFUL)


def carry_out(config: RunConfig, sender: Wandb, rounds: int | None = None) -> None:
    """Carry the run out, or stop it after so many rounds more."""
    done: list[int] = []

    def stop() -> bool:
        return rounds is not None and len(done) > rounds

    execute(config, folder_of(config), Launch("test", track=sender.begin), lambda t, *_: done.append(t), stop)


def expected(config: RunConfig) -> list[tuple[int, dict[str, float]]]:
    return by_round(read_records(folder_of(config).path, result_of(config)))


def test_everything_arrives(config: RunConfig) -> None:
    root = Path(config.paths.results)
    carry_out(config, wandb(root, {config.key: ("fedmr_table1", "fedmr")}, tags=["mine"]))
    (file,) = offline_files(root)
    assert history([file]) == expected(config)
    records = inspect(file)
    (run,) = of_type(records, "run")
    assert run["run_id"].startswith(f"{config.hash}-seed0-")
    assert (run["project"], run["run_group"], run["job_type"]) == ("fedtables", "fedmr_table1", "fedavgm")
    assert set(run["tags"]) == {"fedmr_table1", "fedmr", "quick", "fedavgm", "fake", "round_robin", "mine"}
    sent = run["config"]["update"]
    assert (sent["train"]["rounds"], sent["origin"]) == (3, result_of(config).origin)
    summary = merged(of_type(records, "summary"))
    assert summary["state"] == "done"
    globs = [metric for metric in of_type(records, "metric") if metric.get("glob_name") == "*"]
    assert [metric["step_metric"] for metric in globs] == ["round"]


def test_stopped_and_continued(config: RunConfig) -> None:
    """Offline: two files of one run, which have every round once, with the values of an undisturbed run."""
    root = Path(config.paths.results)
    carry_out(config, wandb(root), rounds=1)
    carry_out(config, wandb(root))
    first, second = offline_files(root)
    assert first.name == second.name
    assert history([first, second]) == expected(config)


@pytest.mark.parametrize("text", ["", "x"])
def test_a_note_that_is_not_whole_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "tracked").write_text(text)
    assert sent_of(tmp_path / "tracked") == -1


def test_a_server_that_cannot_be_used(
    config: RunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is said once, the runs go on with the same bits, and `send_finished` sends what is missing."""
    calm = tiny(tmp_path / "calm", STATEFUL)
    execute(calm, folder_of(calm), Launch("test"))
    root, other = Path(config.paths.results), config.model_copy(update={"seed": 1})
    dead = wandb(root, mode="online")
    carry_out(config, dead)
    carry_out(other, dead)
    assert bits(config) == bits(calm)
    said = [line for line in capfd.readouterr().err.splitlines() if "W&B cannot be used" in line]
    assert len(said) == 1 and f"python -m benchmark export wandb results={root}" in said[0]
    assert wandb(root).send_finished(folder_of(config))
    (file,) = offline_files(root)
    assert history([file]) == expected(config)
    assert not wandb(root).send_finished(folder_of(config)), "nothing is missing"


def test_tables_and_figures_are_artifacts(tmp_path: Path) -> None:
    from PIL import Image

    rows = [["method", "mean", "note"], ["FedAvg", "70.125", ""], ["FedMR", "", "diverged"]]
    (tmp_path / "t.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    Image.new("L", (4, 4)).save(tmp_path / "t.png")
    files = [tmp_path / "t.csv", tmp_path / "t.png"]
    for kind in ("table", "figure"):
        wandb(tmp_path).send_files(kind, "quick", files)
    found = {}
    for file in offline_files(tmp_path):
        records = inspect(file)
        (run,) = of_type(records, "run")
        artifacts = {artifact["type"]: artifact["name"] for artifact in of_type(records, "artifact")}
        found[run["run_id"]] = (run["job_type"], run["run_group"], artifacts[run["job_type"]])
    assert found == {f"{kind}-quick-t": (kind, "t", "quick-t") for kind in ("table", "figure")}


@pytest.mark.parametrize(
    ("mode", "variable", "active"),
    [
        ("online", "disabled", True),
        (None, "disabled", False),
        (None, "", True),
        ("disabled", "online", False),
    ],
)
def test_the_variable_says_the_mode_where_the_settings_do_not(
    mode: str | None, variable: str, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    assert wandb(Path(), mode=mode).settings.active == active
