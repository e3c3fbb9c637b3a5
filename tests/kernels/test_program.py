"""A recorded program runs again on whatever its inputs hold by then."""

import gc
import mmap
import weakref

import pytest
import torch

from kernels.layer_cases import normal
from strata.core.errors import EngineError
from strata.kernels import _native
from strata.kernels.buffers import OWN_PAGES, Blocks, Buffers
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.cuda_program import uncollected
from strata.kernels.native import Native
from strata.kernels.program import NativeWorkspace


def chain(ops: CpuOps, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Some operations whose intermediate results die on the way."""
    for i in range(6):
        x = ops.add(ops.gate("silu", x, ops.multiply(x, 0.5 + i)), ops.rms_norm(x, None, 1e-6, 32))
    return ops.take_rows(x, rows)


def test_a_program_gives_what_its_operations_give() -> None:
    ops = CpuOps(Native(2))
    x, rows = normal(1, 4, 64), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        y = chain(ops, x, rows)
    assert len(program) == 6 * 4 + 1
    assert torch.equal(y, chain(ops, x, rows))
    for seed in range(2, 5):
        x.copy_(normal(seed, 4, 64))
        rows.copy_(torch.tensor([seed % 4, 0]))
        before = y.clone()
        program.run()
        assert torch.equal(y, chain(ops, x, rows))
        assert not torch.equal(y, before)


def test_memory_is_used_again_within_the_program_only() -> None:
    ops = CpuOps(Native(1))
    x, rows = normal(1, 4, 1024), torch.tensor([0], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        y = chain(ops, x, rows)
    assert program.blocks.nbytes <= 6 * x.nbytes < 24 * x.nbytes
    outside = ops.add(x, x)
    program.run()
    assert torch.equal(outside, x + x)
    assert torch.equal(y, chain(ops, x, rows))


def test_a_block_serves_again_only_when_no_tensor_is_left_over_it() -> None:
    """Negative control: a view that still stands keeps its bytes."""
    buffers = Buffers(Blocks())
    first = buffers.empty((4, 8), torch.float32)
    view = first[1:3].reshape(-1)
    place = first.data_ptr()
    del first
    assert buffers.empty((4, 8), torch.float32).data_ptr() != place
    del view
    again = [buffers.empty((4, 8), torch.float32) for _ in range(2)]
    assert place in [t.data_ptr() for t in again]


def test_steps_of_one_workspace_share_its_memory() -> None:
    """Each gives what its operations give, though another ran on the same blocks before."""
    ops = CpuOps(Native(2))
    workspace, x = NativeWorkspace(ops.native), normal(1, 4, 1024)
    inputs = [torch.arange(size, dtype=torch.int32) for size in (4, 3, 2)]
    expected = [chain(ops, x, rows) for rows in inputs]
    steps = []
    for rows in inputs:
        program = workspace.program()
        with program.recording():
            steps.append((program, chain(ops, x, rows)))
        assert workspace.nbytes <= 8 * x.nbytes
    for i in (0, 1, 2, 1, 0):
        steps[i][0].run()
        assert torch.equal(steps[i][1], expected[i])
    with workspace.step():
        assert torch.equal(chain(ops, x, inputs[2]), expected[2])
    assert workspace.nbytes <= 8 * x.nbytes


def test_what_a_step_left_is_lost_with_the_next() -> None:
    """Negative control: the same blocks serve again."""
    ops = CpuOps(Native(1))
    workspace, x = NativeWorkspace(ops.native), normal(1, 16, OWN_PAGES // 64)
    with workspace.step():
        first = ops.add(x, x)
    kept = first.clone()
    with workspace.step():
        ops.multiply(x, 3.0)
    assert torch.equal(first, x * 3.0) and not torch.equal(first, kept)


def test_smaller_steps_fit_into_what_a_larger_one_left() -> None:
    blocks = Blocks()
    for rows in (64, 33, 20, 16):
        buffers = Buffers(blocks)
        assert len({buffers.empty((rows, 1024), torch.float32).data_ptr() for _ in range(3)}) == 1
        assert blocks.nbytes == 64 * 4096
    assert blocks.nbytes < (Buffers(blocks).empty((4, 1024), torch.float32), blocks.nbytes)[1], "far too large a block"


def test_large_blocks_go_back_to_the_system() -> None:
    blocks = Blocks()
    tensor = Buffers(blocks).empty((OWN_PAGES,), torch.int32)
    assert not tensor.any(), "memory that nobody had before is zero"
    assert blocks.nbytes == tensor.nbytes
    base = blocks.by_size[tensor.nbytes][0].base
    assert isinstance(getattr(base, "obj", base), mmap.mmap)


def test_what_an_operation_checks_is_checked_again() -> None:
    ops = CpuOps(Native(1))
    x, rows = normal(1, 4, 64), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        ops.take_rows(x, rows)
    rows[1] = 4
    with pytest.raises(IndexError, match="row 4 of 4"):
        program.run()


def test_one_program_records_at_a_time() -> None:
    native = Native(1)
    program, other = (NativeWorkspace(native).program() for _ in range(2))
    with program.recording(), pytest.raises(EngineError, match="recorded already"), other.recording():
        pass
    with other.recording():
        CpuOps(native).add(normal(1, 8), normal(2, 8))
    assert (len(program), len(other)) == (0, 1)


def test_times_name_the_operations_and_their_parts() -> None:
    ops = CpuOps(Native(1))
    x, rows = normal(1, 4, 64), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        x = ops.add(x, x)
        program.mark("first")
        program.mark("nothing")
        chain(ops, x, rows)
        program.mark("chain")
        ops.add(x, x)
    times = program.times()
    assert [t.nanoseconds for t in times] == [0] * 27
    assert [t.part for t in times] == ["first", *["chain"] * 25, ""]
    program.run_timed()
    assert [t.operation for t in program.times()[:4]] == ["add", "multiply", "gate", "rms_norm"]
    assert all(t.nanoseconds > 0 for t in program.times())


def apart(ops: CpuOps, x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    """Operations that do not depend on each other."""
    return [*(ops.multiply(x, 1.5 + i) for i in range(20)), ops.take_rows(x, rows)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_operations_apart_give_what_they_give_in_order(threads: int) -> None:
    """However they are finished: by whoever asks for it, or by the next job of the threads."""
    ops = CpuOps(Native(threads))
    x, rows = normal(1, 4, 256), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        results = apart(ops, x, rows)
    cells = torch.zeros(3, dtype=torch.int64)
    for seed in range(2, 40):
        x.copy_(normal(seed, 4, 256))
        program.run_apart()
        if seed % 2:
            program.finish()
        else:
            _native.exercise(ops.native.handle, 3, 1, -1, cells.data_ptr())
        assert all(torch.equal(a, b) for a, b in zip(results, apart(ops, x, rows), strict=True))
    assert cells.tolist() == [19, 38, 57]
    program.finish()


def test_operations_apart_are_not_done_before_they_are_finished() -> None:
    """Negative control: with one thread nobody but the caller could do them."""
    ops = CpuOps(Native(1))
    x, rows = normal(1, 4, 256), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        results = apart(ops, x, rows)
    x.copy_(normal(2, 4, 256))
    program.run_apart()
    assert not any(torch.equal(a, b) for a, b in zip(results, apart_in_numbers(x, rows), strict=True))
    program.finish()
    assert all(torch.equal(a, b) for a, b in zip(results, apart_in_numbers(x, rows), strict=True))


def apart_in_numbers(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    """The same by torch, which uses none of the threads."""
    return [*(x * (1.5 + i) for i in range(20)), x[rows.long()]]


def test_what_an_operation_apart_raises_comes_out_when_it_is_finished() -> None:
    ops = CpuOps(Native(2))
    x, rows = normal(1, 4, 64), torch.tensor([3, 1], dtype=torch.int32)
    program = NativeWorkspace(ops.native).program()
    with program.recording():
        kept = apart(ops, x, rows)
    rows[1] = 4
    program.run_apart()
    with pytest.raises(IndexError, match="row 4 of 4"):
        program.finish()
    rows[1] = 0
    program.run_apart()
    program.finish()
    assert torch.equal(kept[-1], x[[3, 0]])


class Knot:
    """Holds itself, so only the collector of cycles ends it."""

    def __init__(self) -> None:
        self.own = self


def test_nothing_is_collected_while_a_graph_is_captured() -> None:
    """A graph that ended there, of a runner that was dropped before, would end the capture with it."""

    def alive_after(allocations: int) -> bool:
        knot = weakref.ref(Knot())
        kept = [[] for _ in range(allocations)]
        return knot() is not None and len(kept) == allocations

    enough = 100 * (gc.get_threshold()[0] + 1) * (gc.get_threshold()[1] + 1)
    assert gc.isenabled() and not alive_after(enough)
    with uncollected():
        assert alive_after(enough)
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
