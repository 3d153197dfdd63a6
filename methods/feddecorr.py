"""FedDecorr: Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning.

Shi, Liang, Zhang, Tan, Bai, ICLR 2023, https://arxiv.org/abs/2210.00226

L = CE + beta L_decorr. Features whose correlation matrix K [d, d] is far from the identity lie in few directions;
L_decorr lowers the spread of its eigenvalues, for sum (lam_i - 1)^2 = ||K||_F^2 - d as tr K = d:

    zh = (z - mean z) / sqrt(var z),    K = zh' zh / N,    L_decorr = ||K||_F^2 / d^2,

over the N samples of the mini-batch. It is FedMR's intra-class loss without classes. The authors' code
(``variant: reference``, ``docs/fidelity.md``) has about N times this loss, so beta does not transfer.
"""

from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Loss
from methods.core.rules import ClientRule, VariantRule, register
from methods.shared.precision import float32

EPS = 1e-8
"""Is added to variances, as in the authors' code: a feature without variance is 0 after standardising."""


def decorrelation(z: Tensor, variant: str = "paper") -> Tensor:
    """L_decorr of features z [N, d], a scalar.

    ``variant``: ``paper``, or ``reference``, the mean of the squared off-diagonal entries of zh' zh over N, with the
    unbiased variance; 0 for one sample.
    """
    (N, d), paper = z.shape, variant == "paper"
    centred = z - z.mean(0)
    var = centred.square().sum(0) / (N if paper else max(N - 1, 1))
    zh = centred * (var + EPS).rsqrt()
    A = zh.T @ zh
    if paper:
        return (A / N).square().sum() / d**2
    return (A.square().sum() - A.diagonal().square().sum()) / (max(d * (d - 1), 1) * N)


@register("client", "feddecorr")
class FedDecorr(VariantRule, ClientRule):
    """Uncorrelated features against dimensional collapse.

    ``beta``: weight of the decorrelation (0 is FedAvg).
    """

    beta: float = Field(ge=0, allow_inf_nan=False)

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """beta L_decorr, in float32 at least."""
        if self.beta == 0:
            return Loss(0.0)
        with float32(batch.z) as z:
            return Loss(self.beta * decorrelation(z, self.variant))
