"""FedAdam, FedYogi and FedAdagrad: which values of the server rate and of tau belong to which form."""

import pytest

from benchmark.config.compose import load_group
from benchmark.config.merge import merge
from methods.core.method import build


@pytest.mark.parametrize(
    ("name", "own", "lr", "tau"),
    [
        ("adam", (0.01, 0.001), 0.1, 1e-9),
        ("yogi", (0.01, 0.001), 0.01, 1e-3),
        ("adagrad", (0.1, 0.01), 0.1, 1e-9),  # best for CIFAR-100 and EMNIST by the authors' list
    ],
)
def test_the_reference_has_flower_s_values(
    name: str, own: tuple[float, float], lr: float, tau: float
) -> None:
    """Flower's default arguments (fedadam.py, fedyogi.py, fedadagrad.py), together with its first v."""
    config = load_group("method", f"fed{name}")
    paper = build(config).optimizer.model_dump()
    assert (paper["lr"], paper["tau"], paper["v0"]) == (*own, "tau2")

    code = build(merge(config, {"server": {"optimizer": {"variant": "reference"}}})).optimizer.model_dump()
    assert (code["lr"], code["tau"], code["v0"]) == (lr, tau, "zero")
    assert code.get("bias_correction", True), "FedAdam"

    tuned = {"server": {"optimizer": {"variant": "reference", "lr": 0.5}}}
    assert build(merge(config, tuned)).optimizer.model_dump()["lr"] == 0.5, "a value that is given is kept"
