"""``make bench ARGS=device=cuda``: ResNet-18 beside a bare loop, packed runs, and workloads of other projects."""

from benchmark.bench.speed import REPEATS, compare, federated, settings

WORKLOADS = (
    # name, clients, samples of each, rounds, clients of a round, epochs, batch, rounds between evaluations, goal
    ("Small CNN", 10, 5_000, 10, 10, 1, 64, 10, ""),
    # benchmarks/image_classification/configs/baseline.yaml of apple/pfl-research, commit c9d1f32
    ("pfl-research", 1_000, 50, 1_500, 50, 1, 10, 10, " (target on an H100-class card: under 120 s)"),
    # benchmarks/blazefl-case/main.py of kitsuyaazuma/blazefl, commit 6dcb310
    ("BlazeFL", 100, 500, 5, 100, 5, 50, 1, " (target on an H100-class card: under 10 s)"),
)
"""Runs of FedAvg with the small CNN on images of CIFAR-10's shape."""


def main(folder: str, device: str, size: str) -> None:
    """Print the measurements; size ``mini`` takes seconds on a CPU, and only shows that everything works."""
    mini, runtime = size == "mini", {"device": device}
    pixels, clients, samples, repeats = (8, 2, 2, 1) if mini else (32, 10, 2_560, REPEATS)
    print(f"ResNet-18, {pixels} px, bf16, {clients} clients of {samples:,} samples, batch 128", flush=True)
    data = {"train_size": clients * samples, "test_size": 10, "size": pixels, "channels": 3}
    train, precision = {"rounds": 1, "batch_size": 128}, {"amp": True}
    run = settings(folder, data, clients, "resnet18_32", train=train, precision=precision, runtime=runtime)
    compare(run, compare(run, 1, repeats), repeats)
    print("  (target on an H100-class card: at least 24,000 samples/s together)")
    for name, clients, samples, rounds, selected, epochs, batch, every, goal in WORKLOADS:
        tested = 10_000
        if mini:
            clients, samples, rounds, selected, tested = 4, 20, 2, 4, 20
        data = {"train_size": clients * samples, "test_size": tested, "size": 32, "channels": 3}
        budget = {"rounds": rounds, "epochs": epochs, "batch_size": batch, "clients_per_round": selected}
        changes = {"train": {**budget, "lr": 0.1, "momentum": 0.0}, "evaluation": {"every": every}}
        run = settings(folder, data, clients, "small_cnn", runtime=runtime, **changes)
        seconds = federated(run)
        print(
            f"{name}: {rounds:,} rounds of {selected} of {clients:,} clients of {samples:,} samples, epochs {epochs}, "
            f"batch {batch}\n  {seconds:.1f} s, {rounds * selected * samples * epochs / seconds:,.0f} samples/s{goal}",
            flush=True,
        )
