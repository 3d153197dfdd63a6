"""Measure ``mu1_ratio`` of FedMR: Eq. 3's weight for a weight of 1 in the form of the authors' code.

For each column: the least-squares factor from the gradient of Eq. 3 to that of the code's form, with respect to the
features of a batch, and the cosine of the two, at the initial model of seed 0, client after client. Printed are the
medians over the batches: a feature that is almost dead in one class can have most of a batch's gradient. With
``random``, for data that are not there, the images are random numbers of 200 x 200 pixels, the size of ISIC2019's,
and the labels those of the column in preset quick.

    python scripts/fedmr_ratio.py TABLE PRESET COLUMNS BATCHES [random]
"""

import sys
from functools import partial

import numpy as np
import torch

from benchmark.engine.randomness import torch_seed
from benchmark.experiments.patterns import fits
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.models.networks import build_net
from benchmark.models.pretrained import read_weights
from benchmark.runs.build import build_problem
from benchmark.runs.data import load_data
from methods.fedmr import conversion
from methods.shared.fast import intra_class

table, preset, columns, batches, *rest = sys.argv[1:]
spec, rng = spec_called(table), np.random.default_rng(0)
for column in (c.key for c in spec.run_columns if fits(c.key, columns)):
    cifar = preset != "quick" and column.startswith("cifar")
    data = {"dataset": {"options": {"strict": False}}} if cifar else {}
    presets = ((preset, {}), ("quick", {})) if rest else ((preset, data),) * 2
    run, labels = (plan(spec, p, extra=more)["fedmr", column].runs[0] for p, more in presets)
    problem = build_problem(labels, load_data(labels), torch.device("cpu"))
    c, height, width = (3, 200, 200) if rest else problem.transform(problem.images[:1]).shape[1:]
    parameters = run.model.parameters | ({"pretrained": False} if rest else {})
    net = build_net(
        run.model.name, problem.num_classes, (c, height, width), parameters, torch_seed(0, "model"),
        partial(read_weights, paths=run.paths),
    ).train()  # fmt: skip
    found = []
    torch.manual_seed(0)  # dropout, and random images
    for number in range(int(batches)):
        own = problem.clients[number % len(problem.clients)]
        rows = torch.from_numpy(rng.permutation(own)[: run.train.batch_size])
        with torch.no_grad():
            z = net.features(
                torch.randn(len(rows), c, height, width) if rest else problem.transform(problem.images[rows])
            )
        z, y = z.double().requires_grad_(), problem.labels[rows]
        forms = [intra_class(z, y, 1e-8, form) for form in ("paper", "reference")]
        paper, code = (torch.autograd.grad(loss, z)[0].flatten() for loss in forms)
        found.append(
            ((paper @ code / (paper @ paper)).item(), torch.cosine_similarity(paper, code, 0).item())
        )
    ratio, cosine = np.nanmedian(found, 0)
    N = run.train.batch_size / float(np.mean([len(problem.labels[own].unique()) for own in problem.clients]))
    formula = f"{conversion(N, z.shape[1]):.3g} at N = {N:.2f}"
    print(f"{column}: ratio {ratio:.3g}, cosine {cosine:.2f}; formula {formula}", flush=True)
