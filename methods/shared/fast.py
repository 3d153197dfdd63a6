"""Losses of methods in few kernels. A method's file states the same loss as its paper does; tests compare both."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def contrast(z: Tensor, z_glob: Tensor, z_prev: Tensor, T: float) -> Tensor:
    """`methods.moon.contrast`; the cosine of a zero vector is 0."""
    # -log(e^p / (e^p + e^n)) = softplus(n - p), and n - p is one product with z, for it is linear in z / ||z||.
    away = (F.normalize(z_prev) - F.normalize(z_glob)) / T
    length = z.norm(dim=1) + 1e-20
    return F.softplus(torch.einsum("bh,bh->b", z, away) / length).mean()


def intra_class(z: Tensor, y: Tensor, eps: float, variant: Literal["paper", "reference"] = "paper") -> Tensor:
    """`methods.fedmr.intra_class`, or the form of FedMR's code that is described there."""
    return _IntraClass.apply(z, y, eps, variant == "paper")[0]


class _IntraClass(torch.autograd.Function):
    """`intra_class` with its gradient in closed form: half the kernels of autograd.

    With G = dL/dzh, and means over the samples of a class, dL/dz is (G - zh mean(G zh)) / sqrt(var_c + eps) less its
    mean, as in BatchNorm. For the unbiased variance mean(G zh) is divided by N_c - 1 too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, y: Tensor, eps: float, paper: bool) -> tuple[Tensor, Tensor]:
        same = y[:, None] == y  # [B, B]: all sums over a class are products with it
        count = same.sum(1, keepdim=True, dtype=z.dtype)  # N_c of each sample's class [B, 1]
        average = same / count
        spread = average if paper else same / (count - 1).clamp_min(1)
        centred = z - average @ z
        # A feature without variance is 0 after standardising, also for eps = 0.
        scale = (spread @ centred.square() + max(eps, torch.finfo(z.dtype).tiny)).rsqrt()
        zh = centred * scale
        if paper:
            # |C_b|: every class adds N_c times 1/N_c, or 0 for N_c = 1.
            classes = average.diagonal().frac().sum()
            weight = same / ((count - 1).square() * classes).clamp_min(1)
        else:
            h, samples = z.shape[1], (count > 1).sum(dtype=z.dtype)
            weight = same / (samples * (h * (h - 1))).clamp_min(1)
        # ||zh' zh||_F = ||zh zh'||_F: one Gram matrix of the samples holds every class, whatever h is.
        gram = zh @ zh.T
        weighted = gram * weight
        loss = torch.dot(weighted.flatten(), gram.flatten())
        G = weighted @ zh  # a quarter of dL/dzh
        if not paper:  # without the diagonal of A_c
            squares = zh.square()
            diagonal = weight @ squares
            loss = loss - torch.dot(diagonal.flatten(), squares.flatten())
            G = G - diagonal * zh
        gradient = (G - zh * (spread @ (G * zh))) * (4 * scale)
        return loss, torch.addmm(gradient, average, gradient, alpha=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)  # the second output has none
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return above * gradient, None, None, None


def inter_class(z: Tensor, y: Tensor, g: Tensor, share: Tensor, nearness: Tensor) -> Tensor:
    """`methods.fedmr.inter_class`; ``share`` and ``nearness`` are the `pairs` of its classes."""
    away = torch.cdist(z, g, compute_mode="donot_use_mm_for_euclid_dist")  # [B, C]
    N = (y[:, None] == torch.arange(len(g), device=y.device)).sum(0)
    # torch's loss is weight[c_i]/C times the sum over c_j != c_i of max(0, s_cj - s_ci).
    s = torch.sub(nearness, away, alpha=len(g))
    return F.multi_margin_loss(s, y, margin=0, weight=share / N, reduction="sum")


def pairs(own: Tensor, classes: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """For masks [C] of m classes c_i, and of n classes c_j that hold them.

    1/(m (n - 1)) for each of the m, else 0; and 0 for each of the n, else less than any distance.
    """
    m, n = own.sum(dtype=dtype), classes.sum(dtype=dtype)
    return own / (m * (n - 1)).clamp_min(1), classes.log().clamp_min(-1e30)
