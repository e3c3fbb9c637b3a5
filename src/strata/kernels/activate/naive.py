"""Activations: the specification. The C++ form (csrc/activation.h) mirrors every operation below, bit for bit.

All operations are float32, one rounding each, in the order written; fma(a, b, c) rounds a * b + c once.

exp(x):
    x > 89 -> +infinity;  x < -104 -> +0 (the true value rounds to 0);  NaN -> NaN;  otherwise:
    n = round_half_even(x * LOG2_E)                      one product, then to an integer, -150 .. 128
    r = fma(-n, LN2_HIGH, x);  r = fma(-n, LN2_LOW, r)   |r| <= 0.347
    p = EXP[0];  p = fma(p, r, c) for c in EXP[1:]       exp(r), Horner
    n1 = floor(n / 2), n2 = n - n1;  (p * 2^n1) * 2^n2   the first product is exact, the second overflows to infinity
                                                         above 88.7228 and becomes subnormal below -87.34 as IEEE says
sigmoid(x) = 1 / (1 + exp(-x))                           0 for x < -88.73, where exp(-x) is infinite
silu(x)    = x * sigmoid(x)                              (-infinity gives NaN: it shows)
softplus(x):
    x > 20 -> x;  otherwise max(x, 0) + log1p(e) with e = exp(-|x|) and max(x, 0) = x > 0 ? x : +0:
    s = e / (2 + e);  t = s * s                          log1p(e) = 2 atanh(s), 0 <= s <= 1/3
    p = LOG[0];  p = fma(p, t, c) for c in LOG[1:]
    log1p(e) = fma(s * t, p, 2 * s)

The polynomials are minimax fits of the relative error (3e-9 for EXP, 5e-9 for LOG, before rounding of coefficients).
"""

import numpy as np
import torch

from strata.kernels.exact import Array32, add, divide, fma, multiply
from strata.kernels.ops import Activation

LOG2_E = np.float32(1.442695)
LN2_HIGH = np.float32(0.6931472)
LN2_LOW = np.float32(-1.9046542e-09)
EXP = tuple(np.float32(c) for c in (0.0013814599, 0.008368717, 0.04166839, 0.16666521, 0.49999994, 1.0, 1.0))
LOG = tuple(np.float32(c) for c in (0.28011996, 0.28001803, 0.40021527, 0.6666642))
EXP_OVERFLOW = np.float32(89.0)
EXP_UNDERFLOW = np.float32(-104.0)
SOFTPLUS_LINEAR = np.float32(20.0)


def _power_of_two(n: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> Array32:
    """2^n for integers -126 .. 127, by its bits."""
    return ((n + np.int32(127)) << 23).view(np.float32)


def exp(x: Array32) -> Array32:
    """The shared exponential; relative error below 2e-7 where the result is a normal number."""
    inside = (x >= EXP_UNDERFLOW) & (x <= EXP_OVERFLOW)
    safe = np.where(inside, x, np.float32(0))
    n = np.rint(multiply(safe, LOG2_E))
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, safe))
    p: Array32 = np.full_like(r, EXP[0])
    for c in EXP[1:]:
        p = fma(p, r, c)
    whole = n.astype(np.int32)
    half = whole >> 1
    value = multiply(multiply(p, _power_of_two(half)), _power_of_two(whole - half))
    outside = np.where(x > EXP_OVERFLOW, np.float32(np.inf), np.where(x < EXP_UNDERFLOW, np.float32(0), x))
    return np.asarray(np.where(inside, value, outside), np.float32)


def sigmoid(x: Array32) -> Array32:
    """1 / (1 + exp(-x))."""
    return divide(np.float32(1), add(np.float32(1), exp(-x)))


def silu(x: Array32) -> Array32:
    """x * sigmoid(x)."""
    return multiply(x, sigmoid(x))


def softplus(x: Array32) -> Array32:
    """log(1 + exp(x)); relative error below 1e-6 down to -87, x itself above 20."""
    e = exp(-np.abs(x))
    s = divide(e, add(np.float32(2), e))
    t = multiply(s, s)
    p: Array32 = np.full_like(t, LOG[0])
    for c in LOG[1:]:
        p = fma(p, t, c)
    log1p = fma(multiply(s, t), p, multiply(np.float32(2), s))
    positive = np.where(x > 0, x, np.float32(0))
    return np.asarray(np.where(x > SOFTPLUS_LINEAR, x, add(positive, log1p)), np.float32)


FUNCTIONS = {"exp": exp, "sigmoid": sigmoid, "silu": silu, "softplus": softplus}


def activate(kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
    """kind(x / divisor) * factor of every value, float32, same shape."""
    y = FUNCTIONS[kind](divide(x.numpy(), np.float32(divisor)))
    return torch.from_numpy(multiply(y, np.float32(factor)))
