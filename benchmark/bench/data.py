"""What a large data set costs: preparing 25,000 photographs, and training on them in two processes.

``python -m benchmark bench data``. The raw tree is HAM10000's, with more images. They are of noise, 600 x 450, and hard
links to a few files, which saves disk and no decoding.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.errors import ConfigError
from benchmark.launch.resources import usable_cores
from benchmark.paths import ROOT
from datasets.ham10000 import CLASSES

DIFFERENT = 200
WIDTH, HEIGHT = 600, 450
OPTIONS = ("strict=false", "size=224")

TRAIN = (
    "partition=iid partition.clients=10 model=tiny_mlp model.units=8 train.rounds=1 train.epochs=1 "
    "train.batch_size=64 train.lr=0.01 evaluation.validation=0.1 seed=0,1 workers=2"
).split()


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


def measured(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run a command of the benchmark to its end: (seconds, processor seconds of all its processes)."""
    places = {"FEDTABLES_DATA": str(folder / "raw"), "FEDTABLES_CACHE": str(folder / "cache")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "benchmark", *words]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=os.environ | places).returncode
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise ConfigError(f"bench data: a step ended with exit code {code}; see above.")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(images: int) -> None:
    """Print what each step takes; the files go to a temporary folder (TMPDIR), about 0.2 MB for each image."""
    with tempfile.TemporaryDirectory(prefix="fedtables-bench-") as name:
        folder = Path(name)
        write_raw(folder / "raw", images)
        seconds, cpu = measured(["data", "prepare", "ham10000", *OPTIONS], folder)
        size = sum(path.stat().st_size for path in (folder / "cache").rglob("*images.npy"))
        print(
            f"prepare {images:,} JPEG files of {WIDTH} x {HEIGHT} as {size / 1e9:.2f} GB: {seconds:.0f} s, "
            f"{images / seconds:.0f} images/s, {cpu / seconds:.2f} of {usable_cores()} cores busy"
        )
        options = [f"++dataset.options.{option}" for option in OPTIONS]
        words = ["dataset=ham10000", *options, *TRAIN, f"paths.results={folder / 'results'}"]
        seconds, _ = measured(["run", "-m", *words], folder)
        print(f"train 2 runs at the same time, each image once: {seconds:.0f} s")
