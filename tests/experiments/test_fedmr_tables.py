"""FedMR's tables: the weights of its losses in each cell, and the settings of ISIC2019."""

from typing import Any

import pytest

from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called


def of_client(run: Any) -> dict[str, Any]:
    return dict(run.method["client"]["fedmr"])


@pytest.mark.parametrize("name", ["fedmr_table1", "fedmr_table2", "fedmr_table6"])
@pytest.mark.parametrize("preset", ["quick", "small", "paper"])
def test_a_measured_ratio_where_a_batch_has_few_samples_of_a_class(name: str, preset: str) -> None:
    """The formula is for balanced classes, at least 10 samples of each; the data of SVHN were not at hand."""
    columns = [
        c.key for c in spec_called(name).run_columns if not c.key.startswith("svhn/") or preset == "quick"
    ]
    spec = spec_called(name).cut(["fedmr"], columns)
    for (_, column), cell in plan(spec, preset).items():
        if cell.state != "ok" or "/p50" in column or "/p100" in column:
            continue
        run = cell.runs[0]
        all_classes = 100 if column.startswith("cifar100") else 10
        classes = run.partition.parameters.get("classes_per_client", all_classes)
        few = run.train.batch_size / classes < 10 or column == "isic2019/real"
        fedmr = of_client(run)
        assert (fedmr["mu1"], fedmr["mu1_code"], fedmr["mu2"]) == (None, 0.01, 0.01)
        assert (fedmr["mu1_ratio"] is not None) == few, column


def test_isic2019_has_the_settings_of_flamby() -> None:
    spec = spec_called("fedmr_table2")
    assert spec.column("isic2019/real").metric == "balanced_accuracy"
    run = plan(spec, "paper")["fedproc", "isic2019/real"].runs[0]
    assert run.model.parameters["pretrained"] is True and run.train.loss.gamma == 2
    counts = [334, 909, 265, 72, 196, 19, 21, 48]  # of the stand-in: a tenth of FLamby's training set
    assert run.train.loss.weights == pytest.approx([sum(counts) / n for n in counts], rel=0.05)


def test_table_7_has_the_evaluated_rounds_of_its_rule_in_preset_small() -> None:
    spec = spec_called("fedmr_table7")
    for cell in plan(spec, "small").values():
        assert cell.runs[0].train.rounds / cell.runs[0].evaluation.every >= spec.round("small").n
