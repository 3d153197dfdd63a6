"""Words that a command does not take: one message with what was given and what is expected, before anything slow.

Messages are matched by key, value and suggestion, not by their wording.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SLOW = {"matplotlib", "pandas", "seaborn", "sklearn", "submitit", "timm", "torch", "torchvision", "wandb"}
LIGHT = """
nonsense | command: 'nonsense'
rum train.lr=1 | command: 'rum' 'run'?
table x=1 | table: 'x=1' preset=quick|small|paper
table --x | table: '--x' --verbose
table --verbos | '--verbos' '--verbose'?
table sedes=1 | 'sedes=1' seeds=integer 'seeds'?
table seeds=1 seeds=2 | seeds twice
table seeds=0 | seeds: '0' greater than 0
table seeds=x | seeds: 'x' integer
table preset=quik | preset: 'quik' 'quick'?
table paper=fedsd | paper: 'fedsd' 'fedsdc'?
table table=99 | table: 99 fedmr_table1
table name=fedmr_tabel1 | name: 'fedmr_tabel1' 'fedmr_table1'?
table name=fedmr_table1 rows=fedagv | rows: 'fedagv' 'fedavg'?
table paper=fedmr columns=fmnist/p5c3 | columns: 'fmnist/p5c3' 'fmnist/p5c2'?
table device=tpu | device: 'tpu' cuda:NUMBER
table tuned=x | tuned: 'x' off
table launcher=pbs | launcher: 'pbs' inline, local, slurm
table launcher.grece=3 | launcher.grece: 'grace'? conf/launcher/local.yaml
table launcher=slurm | `sbatch` launcher=local
table launcher=slurm launcher.time=[1 | launcher.time: '[1' YAML
table launcher=slurm launcher.time=2020-99-99 | launcher.time: '2020-99-99' YAML
table launcher=slurm launcher.partion=gpu | launcher.partion: 'partition'?
table launcher=slurm launcher.name=local | launcher.name: launcher=NAME
table tracking=wand | tracking: 'wand' 'wandb'?
table tracking=wandb tracking.projct=x | tracking.projct: 'project'
table tracking=wandb tracking.mode=loud | tracking.mode: 'loud' conf/tracking/wandb
table tracking.mode=offline | tracking.mode tracking=wandb
table name=fedsdc_table1 dataset.options.nois=1 | fedsdc_table1, fedavgm, iid: 'standin' nois: 'noise'?
plan name=fedsdc_table1 preset=paper columns=niid1 dataset.options.helt_out=1 | niid1: 'ham10000' 'held_out'?
plan timing=x | timing: 'x' 'again'
tune | method: ''
tune method=fedprx name=fedmr_table1 | method: 'fedprx' 'fedprox'?
tune method=fedprox | tune: name=FILE
tune method=feddc name=fedsdc_table1 | method: 'feddc' fedsdc_table1: fedavgm,
tune name=fedmr_table1 method=fedprox rows=fedavg | rows: 'fedavg' fedprox
tune name=fedmr_table1 method=fedprox columns=fmnist/p5c3 | columns: 'fmnist/p5c3' 'fmnist/p5c2'?
tune name=fedmr_table1 method=fedprox columns=fmnist/avg | columns: 'fmnist/avg' averages
tune name=fedmr_table1 method=fedprox columns=svhn/iid apply=svhn/p5c2 | apply: share=row
tune name=fedmr_table1 method=fedprox share=row columns=svhn/iid apply=dri | apply: 'dri' svhn/iid
tune name=fedmr_table1 method=fedprox preset=papr | preset: 'papr' 'paper'?
tune name=fedmr_table1 method=fedprox out=a dataset.options.nois=1 | fedmr_table1, nois: 'noise'?
tune name=fedmr_table1 method=fedprox dataset.options.noise=1 | dataset.options: out=FOLDER, tuned=FOLDER
tune name=fedmr_table1 method=fedprox tracking.mode=offline | tracking.mode tracking=wandb
figure paper=x | figure x
figure figure=99 | 99
figure name=x | name: 'x' leaderboard
figure launcher.x=1 | launcher.x:
figure name=fedmr_figure4 seeds=1 tracking.mode=offline | tracking.mode tracking=wandb
show table=1 row=fedmr column=iid | show: '4 tables' fedld_table1
show name=fedmr_table1 row=fedmrr column=fmnist/p10c2 | row: 'fedmrr' 'fedmr'
show name=fedmr_table1 row=fedmr | column: ''
analyse | analyse:
analyse leaderboard x=1 | 'x=1' preset=
fidelity check preset=quick | 'preset=quick' out=
fidelity effects dataset.options.noise=1 | dataset.options.noise
document x | 'x' out=
export wandb tracking=off | tracking is off
export wandb tracking.mode=disabled | tracking is off
status --x | status: '--x'
list method | list: 'method' 'methods'?
data | data: list, prepare, check
data prepair fake | data: 'prepair' 'prepare'?
data list x | data list: 'x'
data prepare | dataset: acevedo, bodzas, cifar10
data prepare fake | data prepare: 'fake' dataset=FILE
data prepare dataset=mnits | dataset: 'mnits' 'mnist'?
data prepare dataset=spawrious dataset.options.bredes=4 | 'spawrious' bredes: breeds, size 'breeds'?
data prepare dataset=spawrious dataset.options.breeds=3 | breeds 3 dataset.options.KEY=VALUE
data prepare dataset=spawrious dataset.options.breeds=[2 | breeds: '[2'
partition | partition: show
partition x | partition: 'x' show
partition show iid | 'iid' key=value
partition show partition=dirichelt | 'dirichelt' 'dirichlet'?
partition show partition.alpa=1 | alpa alpha
partition show dataset.options.x=1 | x:
run x | run: 'x' KEY=VALUE
run -x | run: '-x' --help
run launcher=local | run: launcher Put -m behind
run --verbose | run: --verbose Put -m behind
run method=fedprx | method: 'fedprx' fedavg, (conf/method/) 'fedprox'?
run partition.alpha=-1 | alpha: -1
run +train.lrr=1 | train.lrr: 'lr'?
run partition=iid +partition.clints=1 | clints clients
run dataset.options.x=1 | x:
run dataset=ham10000 dataset.options.siz=64 | 'ham10000' siz: strict, size, 'size'?
run dataset=spawrious dataset.options.breeds=3 | 'spawrious' breeds: 3
run dataset.option.size=64 | dataset.option.size: 'dataset.options
run method=fedprox method.client.fedprox.nu=1 | method.client.fedprox.nu: 'method.client.fedprox.mu'?
run +partition.note=1 train.lrr=1 | train.lrr: 'train.lr'?
run ++trian.lr=0.1 | trian: 'train'?
run train.rounds=0 | train.rounds: 0
run train.rounds=ten | train.rounds: 'ten'
run train.momentum=1 | train.momentum: 1
run train.lr=nan | train.lr: nan
run train.buffers=avg | train.buffers: 'avg' 'local'
run train.steps=5 | epochs=1 steps=5
run train.epochs=null | epochs=None steps=None
run train.schedule.name=cosin | schedule.name: 'cosin' 'cosine'?
run train.schedule={name:step,every:2} | train.schedule: step gamma
run train.schedule={name:step,every:0,gamma:1} | train.schedule.every: 0
run train.schedule={name:exponential,gamma:-1} | train.schedule.gamma: -1
run train.schedule={name:constant,gamma:1} | train.schedule: 'gamma'
run evaluation.validation=1.0 | evaluation.validation: 1.0
run device=tpu | runtime.device: 'tpu'
run train.lr=0.1,0.2 | train.lr: -m
run -m seed=0,1 results=a,b | run: paths and runtime
run -m seed=interval(0,1) | seed: a list of values
run -m method=glob(nothing*) | method: a pattern
run -m method=fedavg,fedprx | method: 'fedprx' 'fedprox'?
run -m train.lr=0.1,-1 | train.lr=-1: train.lr
run method@other=fedavg | without a package
run train.lr.x=1 | train.lr.x: unknown key
run ~train.lrr | train.lrr: 'train.lr'?
run hydra.launcher.nodes=2 | hydra.launcher.nodes: unknown key
run train.lr=${train.nothing} | train.nothing
run train.lr=[ | run: 'train.lr=[' KEY=VALUE
run method=fédavg | run: 'method=fédavg' KEY=VALUE quotes
run method='fédavg' | method: 'fédavg' 'fedavg'?
run partition.nam=iid | partition.nam: 'partition.name'?
run paths.data=${oc.env:HOME} | no call such as
run -m seed=1,${oc.env:X} | no call such as
"""
TORCH = """
analyse leaderboard dataset.options.nois=1 | leaderboard, nois: 'noise'?
run selection.name=roundrobin | 'roundrobin' 'round_robin'?
run +method.client.fedprx={} | 'fedprx' 'fedprox'?
figure name=leaderboard dataset.options.nois=1 | leaderboard, nois: 'noise'?
table name=fedld_ablation_small preset=small show=published | show: 'published' fedld_ablation_small
data prepare dataset=acevedo dataset.options.size=64 data=nothing | Acevedo-20: missing: basophil
"""
"""Mistakes that are found after PyTorch, pandas or matplotlib has been imported."""


SHORT = """
table x, table verbose=1, table paper=fedmr preset=small columns=leaderboard, table show=diference, table
launcher=slurm launcher.time=x, table launcher=slurm launcher.grace=many, plan paper=x, plan device=x, plan x, tune
name=fedmr_table1 method=fedprox validation=0, tune name=fedmr_table1 method=fedprox validation=1, tune
name=fedmr_table1 method=fedprox validation=ten, tune name=fedmr_table1 method=fedprox validation=nan, figure
preset=x, analyse x, analyse resources preset=x, fidelity chek, fidelity effects ids=x, export wandb x, export wandb
tracking.mode=x, status paper=x, report x, report paper=x, data prepare dataset=mnist x=1, partition show dataset=x,
run -m launcher=x, run dataset=x, run model.name=x, run train.lr=x
"""
"""Words, separated by commas, of which the message repeats the last one or its value."""


def cases(text: str) -> list[list[str]]:
    """[words of the command line, parts of the message, separated by spaces] of each line."""
    return [line.split(" | ") for line in text.splitlines() if line]


REPEATED = [[words.strip(), words.split()[-1].rpartition("=")[2] + "'"] for words in SHORT.split(",")]


@pytest.mark.parametrize(("words", "parts"), cases(LIGHT + TORCH) + REPEATED)
def test_a_mistake_is_one_message(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, parts: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without SLURM
    code, out, err = cli(*words.split())
    assert code == 2 and err.startswith("error: ") and err.count("error: ") == 1 and "Traceback" not in out
    assert all(part in err for part in parts.split()), err


def test_mistakes_are_found_before_anything_slow_is_imported(tmp_path: Path, root: Path) -> None:
    code = f"""
import os, sys
from benchmark.__main__ import main
from benchmark.cli import COMMANDS, entry
for command in COMMANDS:
    if command not in ("run", "document"):
        entry(command)
assert "hydra" not in sys.modules
for words, _ in {cases(LIGHT) + REPEATED!r}:
    if not os.fork():
        code = main(words.split())
        print(code, {SLOW!r} & sys.modules.keys(), flush=True)
        os._exit(0)
    os.wait()
"""
    environment = os.environ | {"PYTHONPATH": str(root), "PATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2 set()"] * len(cases(LIGHT) + REPEATED), done.stdout
