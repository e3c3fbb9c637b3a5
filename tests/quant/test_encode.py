import numpy as np
import pytest
import torch

from strata.core.errors import UnsupportedError
from strata.quant.decode import dequantise
from strata.quant.encode import encode, needs_importance
from strata.quant.formats import FORMATS

# Relative RMSE on Gaussian rows: measured figures of ggml's quantisers, with room for another draw.
RMSE = {"F32": 0.0, "F16": 0.0003, "BF16": 0.002, "Q8_0": 0.006, "Q6_K": 0.019, "Q5_K": 0.038, "Q5_0": 0.045}
RMSE |= {"Q5_1": 0.042, "Q4_K": 0.075, "Q4_1": 0.082, "IQ4_NL": 0.08, "IQ4_XS": 0.08, "Q4_0": 0.09, "NVFP4": 0.1}
RMSE |= {"MXFP4": 0.12, "Q3_K": 0.158, "IQ3_S": 0.175, "IQ3_XXS": 0.225, "Q2_K": 0.31, "Q2_0": 0.36, "IQ2_XXS": 0.36}
SLOW = {"IQ2_S": 0.275, "IQ2_XS": 0.31, "IQ1_S": 0.51, "IQ1_M": 0.49}  # their tables take seconds to prepare


def relative_rmse(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(((got.astype(np.float64) - want) ** 2).mean() / (want.astype(np.float64) ** 2).mean()))


def check(name: str, bound: float) -> None:
    fmt = FORMATS[name]
    x = np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32)
    importance = np.ones(512, np.float32) if needs_importance(fmt) else None
    raw = encode(fmt, x, importance)
    assert raw.dtype == np.uint8 and raw.shape == (8, fmt.row_bytes(512))
    error = relative_rmse(dequantise(fmt, raw), x)
    assert bound / 2 <= error <= bound
    assert relative_rmse(dequantise(fmt, np.roll(raw, 1, axis=0)), x) > 1  # control: rows in the wrong place
    zeros = dequantise(fmt, encode(fmt, np.zeros((1, 512), np.float32), importance))
    assert not zeros.any()


@pytest.mark.parametrize(("name", "bound"), RMSE.items())
def test_round_trip(name: str, bound: float) -> None:
    check(name, bound)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bound"), SLOW.items())
def test_round_trip_of_formats_that_start_slowly(name: str, bound: float) -> None:
    check(name, bound)


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"])
def test_importance_is_demanded(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} can be written only with an importance vector"):
        encode(FORMATS[name], np.ones((1, 256), np.float32))


@pytest.mark.parametrize("name", ["Q4_K", "IQ4_NL", "Q2_0"])
def test_importance_moves_the_error(name: str) -> None:
    x = np.random.default_rng(1).standard_normal((32, 256)).astype(np.float32)
    importance = np.ones(256, np.float32)
    importance[::8] = 100.0
    errors = [dequantise(FORMATS[name], encode(FORMATS[name], x, i)) - x for i in (None, importance)]
    plain, weighed = (float((e[:, ::8] ** 2).mean()) for e in errors)
    assert weighed < 0.8 * plain


def test_bf16_rounds_to_nearest_even_as_torch_does() -> None:
    rng = np.random.default_rng(2)
    pattern = rng.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)
    pattern[:4] = [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001]  # two ties, an overflow, a subnormal
    x = pattern.view(np.float32).reshape(1, -1)
    got = dequantise(FORMATS["BF16"], encode(FORMATS["BF16"], x))
    want = torch.from_numpy(x.copy()).to(torch.bfloat16).float().numpy()
    assert np.array_equal(got, want, equal_nan=True)
    assert np.isnan(got).any() and np.isinf(got).any()


def test_q2_0_finds_exact_codes_of_either_sign() -> None:
    rng = np.random.default_rng(3)
    for d in (0.25, -0.75, 3.0):
        x = (rng.integers(-1, 3, (4, 128)) * d).astype(np.float32)
        assert np.array_equal(dequantise(FORMATS["Q2_0"], encode(FORMATS["Q2_0"], x)), x)


def test_refusals() -> None:
    x = np.ones((1, 256), np.float32)
    with pytest.raises(ValueError, match="48 values are no multiple"):
        encode(FORMATS["Q8_0"], np.ones((1, 48), np.float32))
    with pytest.raises(ValueError, match=r"importance of shape \(3,\) for rows of 256 values"):
        encode(FORMATS["Q4_K"], x, np.ones(3, np.float32))
    with pytest.raises(UnsupportedError, match="writing FP8_BLOCK is not supported"):
        encode(FORMATS["FP8_BLOCK"], x)
    with pytest.raises(UnsupportedError, match="writing I32 is not supported"):
        encode(FORMATS["I32"], x)
    x[0, 7] = 1e6
    with pytest.raises(ValueError, match=r"F16 cannot hold 1000000.0 \(row 0, column 7\)"):
        encode(FORMATS["F16"], x)
    x[0, 7] = np.nan
    with pytest.raises(ValueError, match=r"Q8_0 cannot hold nan \(row 0, column 7\)"):
        encode(FORMATS["Q8_0"], x)
