"""What a large data set costs: preparing 25,000 photographs, opening them, training on them in several processes.

``python -m benchmark bench data``. The raw tree is HAM10000's, with more images; they are of noise, 600 x 450, and only
some are different files, which spares the disk and not the decoder. Memory is read from /proc: Linux only.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmark.errors import ConfigError
from benchmark.launch.resources import usable_cores
from benchmark.paths import ROOT
from datasets.ham10000 import CLASSES

DIFFERENT = 200
WIDTH, HEIGHT, SIZE = 600, 450, 224
OPTIONS = {"strict": False, "size": SIZE}

TRAIN = (
    "partition=iid partition.clients=10 model=tiny_mlp model.units=8 train.rounds=1 train.epochs=1 "
    "train.batch_size=64 train.lr=0.01 evaluation.validation=0.1 seed=0,1 workers=2"
).split()
OPEN = f"""
import time
from datasets import load
start = time.perf_counter()
data = load("ham10000", {OPTIONS})
data.train.images[len(data.train) // 2].sum()
print(time.perf_counter() - start)
"""


class Cost(NamedTuple):
    """What a command and all processes that it started took: seconds by the clock, and of all processor cores.

    `own` is the most memory at one time that is no page of a file, in bytes, of all processes together; `largest` that
    of one process.
    """

    output: str
    seconds: float
    cpu: float
    own: int
    largest: int


def write_raw(folder: Path, images: int) -> None:
    """HAM10000's layout with ``images`` files."""
    top = folder / "HAM10000"
    place = top / "HAM10000_images_part_1"
    place.mkdir(parents=True)
    generator = np.random.default_rng(0)
    # Noise that is coarse and fine at once compresses about as badly as skin under a lens.
    for n in range(DIFFERENT):
        coarse = Image.fromarray(generator.integers(60, 220, (15, 20, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = smooth + generator.integers(-6, 7, smooth.shape, dtype=np.int16)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(top / f"{n}.jpg", quality=90)
    lines = ["lesion_id,image_id,dx,dx_type,age,sex,localization,dataset"]
    for n in range(images):
        name = f"ISIC_{n:07}"
        os.link(top / f"{n % DIFFERENT}.jpg", place / f"{name}.jpg")
        lines.append(f"HAM_{n:07},{name},{CLASSES[n % len(CLASSES)]},histo,50,male,back,rosendahl")
    for n in range(DIFFERENT):
        (top / f"{n}.jpg").unlink()
    (top / "HAM10000_metadata.csv").write_text("\n".join(lines) + "\n")


def measured(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run a command to its end, looking at the memory of its processes every 50 ms."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    highest = largest = 0
    surroundings = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=surroundings) as process:
        while process.poll() is None:
            sizes = [_own_memory(pid) for pid in _family(process.pid)]
            highest, largest = max(highest, sum(sizes)), max(largest, *sizes, 0)
            time.sleep(0.05)
        output, _ = process.communicate()  # a few lines
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise ConfigError(f"bench data: a step ended with exit code {process.returncode}; see above.")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(output, seconds, cpu, highest, largest)


def _family(pid: int) -> list[int]:
    """A process and all that came from it."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = " ".join((task / "children").read_text() for task in tasks)
    except OSError:
        return []
    return [pid, *(member for child in children.split() for member in _family(int(child)))]


def _own_memory(pid: int) -> int:
    """Bytes of a process that are no pages of files: anonymous, or shared memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = dict(line.split(":", 1) for line in lines)
    return sum(int(sizes[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem") if key in sizes)


def main(images: int) -> None:
    """Print what each step takes; the files go to a temporary folder (TMPDIR), about 0.2 MB for each image."""
    if not sys.platform.startswith("linux"):
        raise ConfigError("bench data reads memory from /proc, which only Linux has.")
    with tempfile.TemporaryDirectory(prefix="fedtables-bench-") as name:
        folder = Path(name)
        write_raw(folder / "raw", images)
        environment = {"FEDTABLES_DATA": str(folder / "raw"), "FEDTABLES_CACHE": str(folder / "cache")}
        benchmark = [sys.executable, "-m", "benchmark"]
        options = [f"{key}={str(value).lower()}" for key, value in OPTIONS.items()]
        cost = measured([*benchmark, "data", "prepare", "ham10000", *options], environment)
        print(
            f"prepare {images:,} JPEG files of {WIDTH} x {HEIGHT}: {cost.seconds:.0f} s, {images / cost.seconds:.0f} "
            f"images/s, {cost.cpu / cost.seconds:.2f} of {usable_cores()} cores busy; memory {_gb(cost.own)} in all "
            f"processes together"
        )
        array = sum(path.stat().st_size for path in (folder / "cache").rglob("*images.npy"))
        cost = measured([sys.executable, "-c", OPEN], environment)
        print(f"open {_gb(array)} of prepared images and read one: {float(cost.output):.3f} s")
        words = [
            "dataset=ham10000",
            *(f"++dataset.options.{option}" for option in options),
            *TRAIN,
            f"paths.results={folder / 'results'}",
        ]
        cost = measured([*benchmark, "run", "-m", *words], environment)
        print(
            f"train 2 runs at the same time, each image once: {cost.seconds:.0f} s; the largest process has "
            f"{_gb(cost.largest)} of memory of its own, all together {_gb(cost.own)}"
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
