"""Operations that are several others in a row: what they mean, and how whoever gains nothing by joining does them."""

import torch

from strata.kernels.ops import Ops, RopeLayout
from strata.kernels.views import HeadNorms, PagedPlane, Rows


def add_norm(
    ops: Ops, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.add_norm."""
    total = ops.add(x, y)
    return total, ops.rms_norm(total, weight, eps, total.shape[-1])


def attention_inputs(
    ops: Ops,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    norms: HeadNorms | None,
    angles: tuple[torch.Tensor, torch.Tensor],
    layout: RopeLayout,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.attention_inputs."""
    q = q if q.is_contiguous() else ops.join([q]).view(q.shape)
    if norms is not None:
        q = ops.rms_norm(q, norms.q, norms.eps, q.shape[-1])
        k = ops.rms_norm(k, norms.k, norms.eps, k.shape[-1])
    q, k = ops.rope(q, *angles, layout), ops.rope(k, *angles, layout)
    ops.cache_write(keys, rows.slot, rows.position, k)
    ops.cache_write(values, rows.slot, rows.position, v)
    return q, k


def stream_add_norm(
    ops: Ops,
    residual: torch.Tensor,
    y: torch.Tensor,
    gates: torch.Tensor,
    divisor: float,
    factor: float,
    weight: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.stream_add_norm."""
    total = ops.stream_add(residual, y, gates, divisor, factor)
    return total, ops.rms_norm(total, weight, eps, y.shape[-1])
