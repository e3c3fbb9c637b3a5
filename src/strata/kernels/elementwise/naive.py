"""Specification of elementwise arithmetic: every written operation rounds once, activations are the shared ones."""

import numpy as np
import torch

from strata.kernels.activate.naive import activate
from strata.kernels.exact import Array32
from strata.kernels.exact import add as plus
from strata.kernels.exact import divide as over
from strata.kernels.exact import multiply as times
from strata.kernels.ops import Activation


def same_shape(op: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """ValueError when the shapes differ."""
    if x.shape != y.shape:
        raise ValueError(f"{op}: shapes {tuple(x.shape)} and {tuple(y.shape)} differ")


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See Ops.add."""
    same_shape("add", x, y)
    return torch.from_numpy(plus(x.numpy(), y.numpy()))


def divide(x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.divide."""
    return torch.from_numpy(over(x.numpy(), np.float32(by)))


def multiply(x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.multiply."""
    return torch.from_numpy(times(x.numpy(), np.float32(by)))


def gate(kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.gate."""
    same_shape("gate", g, x)
    return torch.from_numpy(times(activate(kind, g).numpy(), x.numpy()))


def signed_root(x: torch.Tensor, least: float) -> torch.Tensor:
    """See Ops.signed_root: sign(+-0) = +-0, a NaN stays one."""
    values: Array32 = x.numpy()
    size = np.abs(values)
    with np.errstate(invalid="ignore"):
        root = np.sqrt(np.where(size < np.float32(least), np.float32(least), size))
        zero = times(values, np.float32(0))
        sign = np.where(values > 0, np.float32(1), np.where(values < 0, np.float32(-1), zero))
    return torch.from_numpy(times(sign, root))


def delta_rates(
    b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.delta_rates."""
    same_shape("delta_rates", b, a)
    softplus = activate("softplus", torch.from_numpy(plus(a.numpy(), bias.numpy())))
    decay = activate("exp", torch.from_numpy(times(rate.numpy(), softplus.numpy())))
    return activate("sigmoid", b), decay


def spread(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.spread."""
    if weights.shape[0] != x.shape[0]:
        raise ValueError(f"spread: {weights.shape[0]} rows of weights for {x.shape[0]} rows")
    product = times(weights.numpy()[:, :, None], x.numpy()[:, None, :])
    return torch.from_numpy(product.reshape(len(product), -1))
