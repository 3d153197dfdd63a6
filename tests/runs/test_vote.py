"""What a run whose prediction is a vote records and says."""

import logging
from pathlib import Path

import pytest
from tiny_runs import tiny

from benchmark import metrics
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data


def test_a_vote_has_no_scores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No AUROC and no metric of a repository; the log says so once, and no more than that."""
    monkeypatch.setattr(metrics.OWN, "found", {})
    metrics.metric("mine", label="Mine")(lambda scores, labels: 1.0)
    config = tiny(tmp_path, {"method": "fedsdc", "evaluation": {"metrics": ["mine"]}})
    with caplog.at_level(logging.INFO, "fedtables"):
        run = build_run(config, load_data(config))
        recorded = {record.metric for _ in range(2) for record in run.evaluate(run.initial_state())}
    assert not {"auroc", "mine"} & recorded and "macro_f1" in recorded
    assert [line for line in caplog.messages if "auroc" in line] == [
        "prediction vote has no scores: loss, auroc, mine are not recorded"
    ]
