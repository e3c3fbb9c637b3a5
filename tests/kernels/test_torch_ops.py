"""The registered operators on the emulator: the specification's bits, shapes for tracing, refusals."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, bank_of, differing, weight
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import naive
from strata.kernels.torch_ops import Calls, register
from strata.kernels.views import ExpertBank

FORMATS = ["IQ3_S", "IQ3_S", "IQ4_NL"]


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.library.Library]:
    library = register(tmp_path_factory.mktemp("kernels"))
    yield library
    library._destroy()


def stacked(bank: ExpertBank) -> list[torch.Tensor]:
    return [torch.stack([w.planes[0] for w in part]) for part in (bank.gate, bank.up, bank.down)]


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "BF16", "NVFP4_PAIRS"])
def test_linear_gives_the_specifications_bits(ops: torch.library.Library, name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    w, x = weight(name, 9, 256, rng, 0.5), activations(rows, 256, rng)
    scales = w.planes[1] if len(w.planes) > 1 else None
    y = torch.ops.strata.linear(x, w.planes[0], scales, name, 0.5, 0)
    assert differing(y, naive.linear(x, [w])[0]) == 0


@pytest.mark.parametrize("rows", [2, 40])
def test_experts_give_the_specifications_bits(ops: torch.library.Library, rows: int) -> None:
    rng = np.random.default_rng(rows)
    bank = bank_of(rng, [("IQ3_S", "IQ3_S", "IQ4_NL")] * 4, 256, 64)
    bank = ExpertBank(bank.gate, bank.up, tuple(type(w)(w.format, w.rows, w.cols, w.planes) for w in bank.down))
    x = activations(rows, 256, rng) * 1e-3
    ids = torch.from_numpy(np.stack([rng.permutation(4)[:2] for _ in range(rows)]).astype(np.int32))
    factors = torch.from_numpy(rng.random((rows, 2)).astype(np.float32))
    matrices = stacked(bank)
    table = torch.ops.strata.expert_table(*matrices, FORMATS)
    y = torch.ops.strata.experts(x, ids, factors, table, 64, FORMATS, 0)
    assert differing(y, experts_naive.experts(x, ids, factors, bank)) == 0
    matrices[2][:, 0] ^= 0x11  # control: the table leads to these very bytes
    assert differing(torch.ops.strata.experts(x, ids, factors, table, 64, FORMATS, 0), y) > 0


def test_the_operators_keep_torchs_rules(ops: torch.library.Library) -> None:
    rng = np.random.default_rng(1)
    w, x = weight("Q8_0", 5, 64, rng), activations(2, 64, rng)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.strata.linear.default, (x, w.planes[0], None, "Q8_0", 1.0, 0), test_utils=tests)
    bank = bank_of(rng, [("Q8_0", "Q8_0", "Q8_0")] * 2, 64, 32)
    formats, matrices = ["Q8_0"] * 3, stacked(bank)
    torch.library.opcheck(
        torch.ops.strata.expert_table.default, (*matrices, formats), test_utils=("test_schema", "test_faketensor")
    )
    table = torch.ops.strata.expert_table(*matrices, formats)
    ids, factors = torch.tensor([[0], [1]], dtype=torch.int32), torch.ones(2, 1)
    torch.library.opcheck(torch.ops.strata.experts.default, (x, ids, factors, table, 32, formats, 0), test_utils=tests)


def test_what_does_not_fit_is_refused(ops: torch.library.Library) -> None:
    rng = np.random.default_rng(2)
    w, x = weight("Q8_0", 5, 64, rng), activations(2, 64, rng)
    with pytest.raises(ValueError, match="format 'Q9': expected one of F32"):
        torch.ops.strata.linear(x, w.planes[0], None, "Q9", 1.0, 0)
    with pytest.raises(ValueError, match="stream 8 for tensors on the CPU, expected 0"):
        torch.ops.strata.linear(x, w.planes[0], None, "Q8_0", 1.0, 8)
    with pytest.raises(ValueError, match=r"Q8_0 weight of 5 x 32 needs contiguous uint8 \(5, 34\)"):
        torch.ops.strata.linear(x[:, :32].contiguous(), w.planes[0], None, "Q8_0", 1.0, 0)
    bank = stacked(bank_of(rng, [("Q8_0", "Q8_0", "Q8_0")] * 2, 64, 32))
    with pytest.raises(ValueError, match=r"expert_table: up: expected contiguous torch.uint8 \(2, 32, 36\)"):
        torch.ops.strata.expert_table(*bank, ["Q8_0", "Q4_0", "Q8_0"])
    with pytest.raises(ValueError, match="expected those of gate, up and down"):
        torch.ops.strata.expert_table(*bank, ["Q8_0"])
    with pytest.raises(ValueError, match="formats with a plane of scales are not taken here"):
        torch.ops.strata.expert_table(*bank, ["NVFP4_PAIRS"] * 3)


def test_two_registrations_of_one_name_are_refused(ops: torch.library.Library, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="strata"):
        register(tmp_path)
    other = register(tmp_path, "strata_again")
    assert torch.ops.strata_again.linear is not torch.ops.strata.linear
    other._destroy()


def test_a_device_is_opened_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    w, x = weight("Q8_0", 5, 64, rng), activations(2, 64, rng)
    calls = Calls(tmp_path)
    for _ in range(2):
        calls.linear(x, w.planes[0], None, "Q8_0", 1.0, 0)
    assert list(calls.opened) == ["emulator"]
