"""``make bench ARGS=device=cuda``: ResNet-18 beside a bare loop, packed runs, and workloads of other projects."""

from typing import Any

from benchmark.bench.speed import compare, federated, settings

WORKLOADS = (
    # name, clients, samples of each, rounds, clients of a round, epochs, batch, rounds between evaluations, goal
    ("Small CNN", 10, 5_000, 10, 10, 1, 64, 10, ""),
    # benchmarks/image_classification/configs/baseline.yaml of apple/pfl-research, commit c9d1f32
    ("pfl-research", 1_000, 50, 1_500, 50, 1, 10, 10, " (target on an H100-class card: under 120 s)"),
    # benchmarks/blazefl-case/main.py of kitsuyaazuma/blazefl, commit 6dcb310
    ("BlazeFL", 100, 500, 5, 100, 5, 50, 1, " (target on an H100-class card: under 10 s)"),
)
"""Runs of FedAvg with the small CNN on images of CIFAR-10's shape."""

SHORT = 30
"""How many times fewer rounds a workload has with one client at a time."""


def resnet(folder: str, device: str, mini: bool) -> None:
    """ResNet-18 in both number formats, with and without CUDA graphs; then as many runs as fit beside each other."""
    pixels, clients, samples, repeats = (8, 2, 2, 1) if mini else (32, 10, 2_560, 3)
    data = {"train_size": clients * samples, "test_size": 10, "size": pixels, "channels": 3}
    train = {"rounds": 1, "batch_size": 128}
    for precision in ({"amp": False}, {"amp": True}):
        for graphs in (False, True):
            what = f"{'bf16' if precision['amp'] else 'float32'}{', CUDA graphs' if graphs else ''}"
            print(
                f"ResNet-18, {pixels} px, {what}, {clients} clients of {samples:,} samples, batch 128",
                flush=True,
            )
            runtime = {"device": device, "cuda_graphs": graphs}
            run = settings(
                folder, data, clients, "resnet18_32", train=train, precision=precision, runtime=runtime
            )
            fitting = compare(run, 1, repeats)
    compare(run, fitting, 1)
    print("  (target on an H100-class card: at least 24,000 samples/s together)")


def main(folder: str, device: str, size: str) -> None:
    """Print the measurements; size ``mini`` takes seconds on a CPU, and only shows that everything works."""
    mini = size == "mini"
    resnet(folder, device, mini)
    data = {"train_size": 20, "test_size": 10, "size": 32, "channels": 3}
    federated(settings(folder, data, 1, "small_cnn", runtime={"device": device}))  # warms up
    for name, clients, samples, rounds, selected, epochs, batch, every, goal in WORKLOADS:
        tested = 10_000
        if mini:
            clients, samples, rounds, selected, tested = 4, 20, 2, 4, 20
        data = {"train_size": clients * samples, "test_size": tested, "size": 32, "channels": 3}
        print(
            f"{name}: {clients:,} clients of {samples:,} samples, epochs {epochs}, batch {batch}", flush=True
        )
        for how, stack, graphs in (
            ("one by one", 1, False),
            ("CUDA graphs", 1, True),
            ("side by side", 50, False),
        ):
            count = rounds if how == "side by side" else max(1, rounds // SHORT)
            budget = {"rounds": count, "epochs": epochs, "batch_size": batch, "clients_per_round": selected}
            changes: dict[str, Any] = {
                "train": {**budget, "lr": 0.1, "momentum": 0.0, "stack": stack},
                "evaluation": {"every": every},
                "runtime": {"device": device, "cuda_graphs": graphs},
            }
            seconds = federated(settings(folder, data, clients, "small_cnn", **changes))
            rate = count * selected * samples * epochs / seconds
            print(
                f"  {how:12} {count:5,} rounds of {selected} clients   {seconds:6.1f} s   {rate:9,.0f} samples/s"
                f"{goal if count == rounds else ''}",
                flush=True,
            )
