"""Specification of rope and rope_angles.

`y_a = (a cos) - (b sin)`, `y_b = (b cos) + (a sin)`: two products rounded to float32, then one rounding for the sum; no
fused multiply-add. Dims from r on are copied.

An angle is position * frequency in float64. Its cosine and sine are the float64 operations below, each rounded once,
then rounded to float32: no two math libraries, and no library and its vector form, promise the same last bit.

    n = round_half_even(angle * (2 / pi))
    r = ((angle - n * HALF_PI[0]) - n * HALF_PI[1]) - n * HALF_PI[2]    |r| <= pi / 4; exact but for the last step
    z = r * r                                                           while n < 2^27
    s = r + (r * z) * SINE(z);  c = (1 - 0.5 * z) + (z * z) * COSINE(z) Horner from the last coefficient
    (sine, cosine) = (s, c), (c, -s), (-s, -c), (-c, s) for n mod 4 = 0, 1, 2, 3
"""

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.ops import RopeLayout

Array64 = npt.NDArray[np.float64]

TWO_OVER_PI = 0.6366197723675814
HALF_PI = (1.5707963407039642, -1.3909067675399456e-08, 6.123233995736766e-17)
"""pi / 2 in parts: the first two have 26 bits, so that their products with n are exact."""
SINE = (
    -0.16666666666666666,
    0.008333333333333333,
    -0.0001984126984126984,
    2.7557319223985893e-06,
    -2.505210838544172e-08,
    1.6059043836821613e-10,
    -7.647163731819816e-13,
    2.8114572543455206e-15,
)
"""(-1)^k / (2k + 1)! for k = 1 .. 8; the series' next term is below 1e-19."""
COSINE = (
    0.041666666666666664,
    -0.001388888888888889,
    2.48015873015873e-05,
    -2.755731922398589e-07,
    2.08767569878681e-09,
    -1.1470745597729725e-11,
    4.779477332387385e-14,
)
"""(-1)^k / (2k)! for k = 2 .. 8."""


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
    """See Ops.rope."""
    half = int(cos.shape[-1])
    if cos.shape != sin.shape or cos.shape[0] != x.shape[0] or 2 * half > x.shape[-1]:
        raise ValueError(f"rope: cos {tuple(cos.shape)}, sin {tuple(sin.shape)} do not fit x {tuple(x.shape)}")
    source = x.numpy()
    y = source.copy()
    if layout == "halves":
        first, second = slice(0, half), slice(half, 2 * half)
    elif layout == "pairs":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        raise ValueError(f"rope: layout {layout!r} is neither 'halves' nor 'pairs'")
    a, b = source[..., first], source[..., second]
    c, s = cos.numpy()[:, None, :], sin.numpy()[:, None, :]
    with np.errstate(all="ignore"):
        y[..., first] = a * c - b * s
        y[..., second] = b * c + a * s
    return torch.from_numpy(y)


def horner(coefficients: tuple[float, ...], z: Array64) -> Array64:
    """The polynomial, lowest coefficient first."""
    p = np.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        p = p * z + coefficient
    return p


def sine_cosine(angle: Array64) -> tuple[Array64, Array64]:
    """(sine, cosine); see the module's docstring."""
    n = np.rint(angle * TWO_OVER_PI)
    r = ((angle - n * HALF_PI[0]) - n * HALF_PI[1]) - n * HALF_PI[2]
    z = r * r
    s = r + (r * z) * horner(SINE, z)
    c = (1 - 0.5 * z) + (z * z) * horner(COSINE, z)
    quadrant = n.astype(np.int64) & 3
    odd = (quadrant & 1).astype(bool)
    sine, cosine = np.where(odd, c, s), np.where(odd, s, c)
    return np.where(quadrant & 2, -sine, sine), np.where((quadrant + 1) & 2, -cosine, cosine)


def rope_angles(positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.rope_angles."""
    sine, cosine = sine_cosine(positions.numpy().astype(np.float64)[:, None] * frequencies.numpy()[None, :])
    return torch.from_numpy(cosine.astype(np.float32)), torch.from_numpy(sine.astype(np.float32))
