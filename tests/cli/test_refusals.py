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
table --verbos | '--verbos' '--verbose'?
table sedes=1 | 'sedes=1' seeds=integer 'seeds'?
table seeds=1 seeds=2 | seeds twice
table seeds=x | seeds: 'x' integer
table preset=quik | preset: 'quik' 'quick'?
table paper=fedsd | paper: 'fedsd' 'fedsdc'?
table table=99 | table: 99 1, 8
table fedmr_table1 | 'fedmr_table1' name=fedmr_table1
table name=fedmr_table2 rows=fedbn | rows: 'fedbn' tables: conf/method/fedbn.yaml
table name=fedmr_tabel1 | name: 'fedmr_tabel1' 'fedmr_table1'?
table name=fedmr_table1 rows=fedagv | rows: 'fedagv' 'fedavg'?
table table=1 rows=fedavg,fedproxx | rows: 'fedproxx' 'fedprox'? 4 tables
table name=fedsdc_table1 method.client.fedprox.mu=1.0 | row.KEY.method.client.fedprox.mu=1.0 column.KEY.
table name=fedsdc_table1 row.fedprx.train.lr=1 | row: 'fedprx.train.lr' fedprox, fedsdc_table1
table name=fedsdc_table1 row.fedprox.trian.lr=1 | row.fedprox.trian: 'train'?
table name=fedsdc_table1 row.fedprox.train.lrr=1 | fedsdc_table1, fedprox, train.lrr:
table name=fedmr_table1 column.fmnist/avg.train.lr=1 | column: average
table name=fedmr_table1 rows=fedavg row.fedprox.train.lr=1 | row: 'fedprox.train.lr' rows= fedavg
runs state=finished | state: 'finished' done
runs method=fedavg --purge | --purge --delete
table paper=fedmr columns=fmnist/p5c3 | columns: 'fmnist/p5c3' 'fmnist/p5c2'?
table device=tpu | device: 'tpu' cuda:NUMBER
table tuned=x | tuned: 'x' off
table launcher=pbs | launcher: 'pbs' inline, local, slurm
table launcher.grece=3 | launcher.grece: 'grace'? conf/launcher/local.yaml
table launcher=slurm | `sbatch` launcher=local
table launcher=slurm launcher.time=[1 | launcher.time: '[1' YAML
table tracking=wand | tracking: 'wand' 'wandb'?
table tracking=wandb tracking.projct=x | tracking.projct: 'project'
table tracking.mode=offline | tracking.mode tracking=wandb
table name=fedsdc_table1 dataset.options.nois=1 | fedsdc_table1, fedavgm, iid: 'standin' nois: 'noise'?
plan name=fedsdc_table1 preset=paper columns=niid1 dataset.options.helt_out=1 | niid1: 'ham10000' 'held_out'?
plan timing=on | 'timing=on'
plan name=fedsdc_table1 launcher.wrokers=8 | launcher.wrokers: 'workers'? conf/launcher/local.yaml
tune name=fedmr_table1 method=fedprox trials=19 | trials: 19 18
tune name=fedmr_table1 method=fedprox grid.train.lr=0.1 | grid.train.lr: 0.1 list
tune name=fedmr_table1 method=fedprox grid.train.batch=[1] | train.batch tuned
tune name=leaderboard_tuned trials=8 seeds=4 | seeds: 4 leaderboard_tuned
table name=leaderboard_tuned tuned=off freeze=2026-01-31 | freeze: '2026-01-31' tuned=off
tune method=fedprx name=fedmr_table1 | method: 'fedprx' 'fedprox'?
tune method=fedprox | tune: name=FILE
tune method=feddc name=fedsdc_table1 | method: 'feddc' fedsdc_table1 fedavgm,
tune | tune: name=FILE
tune name=fedmr_table1 method=fedprox rows=fedavg | method: 'fedprox' fedmr_table1
tune name=fedmr_table1 method=fedprox columns=fmnist/p5c3 | columns: 'fmnist/p5c3' 'fmnist/p5c2'?
tune name=fedmr_table1 method=fedprox columns=fmnist/avg | 'fmnist/avg' average
tune name=fedmr_table1 method=fedprox dataset.options.noise=1 | dataset.options: out=FOLDER, tuned=FOLDER
figure paper=x | figure x
figure name=x | name: 'x' leaderboard
show table=1 row=fedmr column=iid | show: '4 tables' fedld_table1
show name=fedmr_table1 row=fedmrr column=fmnist/p10c2 | row: 'fedmrr' 'fedmr'
show name=fedmr_table1 row=fedmr | column: ''
export wandb tracking=off | tracking is off
list method | list: 'method' 'methods'?
data | data: list, prepare, check
data prepair fake | data: 'prepair' 'prepare'?
data prepare | dataset: acevedo, bodzas, cifar10
data prepare fake | data prepare: 'fake' dataset=FILE
data prepare dataset=mnits | dataset: 'mnits' 'mnist'?
data prepare dataset=spawrious dataset.options.bredes=4 | 'spawrious' bredes: breeds, size 'breeds'?
data prepare dataset=spawrious dataset.options.breeds=3 | breeds 3 dataset.options.KEY=VALUE
data partition iid | 'iid' key=value
data partition partition=dirichelt | 'dirichelt' 'dirichlet'?
data partition partition.alpa=1 | alpa alpha
data partition dataset.options.x=1 | x:
run x | run: 'x' KEY=VALUE
run -x | run: '-x' --help
run launcher=local | run: launcher Put -m behind
run --verbose | run: --verbose Put -m behind
run method=fedavg method.client.fedprox.mu=1 | method.client.fedprox.mu: fedprox; method=NAME
run method=fedprx | method: 'fedprx' fedavg, (conf/method/; FEDTABLES_PATH is not set). 'fedprox'?
run partition.alpha=-1 | alpha: -1
run +train.lrr=1 | train.lrr: 'lr'?
run partition=iid +partition.clints=1 | clints clients
run partition=iid partition.clints=1 | clints clients
run dataset.options.x=1 | x:
run dataset=ham10000 dataset.options.siz=64 | 'ham10000' siz: strict, size, 'size'?
run train.rounds=0 | train.rounds: 0
run train.rounds=ten | train.rounds: 'ten'
run train.lr=nan | train.lr: nan
run train.epochs=null | epochs=None steps=None
run train.schedule={name:step,every:2} | train.schedule: step gamma
run train.schedule={name:step,every:0,gamma:1} | train.schedule.every: 0
run evaluation.validation=1.0 | evaluation.validation: 1.0
run train.lr=0.1,0.2 | train.lr: -m
run -m seed=0,1 results=a,b | run: paths and runtime
run -m seed=interval(0,1) | seed: a list of values
run -m method=fedavg,fedprx | method: 'fedprx' 'fedprox'?
run -m train.lr=0.1,-1 | train.lr=-1: train.lr
run ~train.lrr | train.lrr: 'train.lr'?
run train.lr=[ | run: 'train.lr=[' KEY=VALUE
run method=fédavg | run: 'method=fédavg' KEY=VALUE quotes
run method='fédavg' | method: 'fédavg' 'fedavg'?
run paths.data=${oc.env:HOME} | no reference
"""
TORCH = """
run selection.name=roundrobin | 'roundrobin' 'round_robin'?
run method=fedprox method.client.fedprox=0.1 | method.client.fedprox: 0.1 mapping
run method=fedprox method.client.fedprox.nu=1 | method.client.fedprox.nu: 'mu'?
run model.hiden=8 | model.hiden: 'hidden'?
run +method.client.fedprx={} | 'fedprx' 'fedprox'?
figure name=leaderboard dataset.options.nois=1 | leaderboard, nois: 'noise'?
table name=leaderboard show=published | show: 'published' leaderboard
table name=leaderboard show=difference base=own | base: 'own' leaderboard
data prepare dataset=acevedo dataset.options.size=64 data=nothing | Acevedo-20: got no basophil
"""
"""Mistakes that are found after PyTorch, pandas or matplotlib has been imported."""


SHORT = """
table x, table verbose=1, table show=diference, table launcher=slurm launcher.time=x, plan paper=x, plan device=x, tune
name=fedmr_table1 method=fedprox validation=0, tune name=fedmr_table1 method=fedprox validation=nan, figure preset=x,
export wandb x, export wandb tracking.mode=x, status paper=x, report x, data prepare dataset=mnist x=1, data partition
dataset=x, run -m launcher=x, run dataset=x, run model.name=x, run train.lr=x
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
from benchmark.cli import COMMANDS
for command in COMMANDS.values():
    command.main
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
