"""Launches that are recorded and run again, as a graph's capture does it: on the emulator."""

import pytest
import torch

from strata.core.errors import EngineError
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice


def chain(ops: GpuOps, x: torch.Tensor) -> torch.Tensor:
    for i in range(3):
        x = ops.add(ops.gate("silu", x, ops.multiply(x, 0.5 + i)), ops.rms_norm(x, None, 1e-6, 32))
    return x


def test_a_program_runs_nothing_while_it_records_and_gives_what_its_operations_give():
    ops = GpuOps(HostDevice())
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    program = ops.workspace().program()
    with program.recording():
        y = chain(ops, x)
        y.fill_(7.0)
    assert len(program) == 12 and torch.equal(y, torch.full_like(y, 7.0))
    for seed in (2, 3):
        x.copy_(torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)))
        program.run()
        assert torch.equal(y, chain(ops, x))


def test_work_that_is_no_launch_is_missed():
    """Negative control: what torch computes while recording is not part of the program."""
    ops = GpuOps(HostDevice())
    x = torch.ones(4, 64)
    program = ops.workspace().program()
    with program.recording():
        y = ops.add(x + 1.0, x)
    x.fill_(5.0)
    program.run()
    assert not torch.equal(y, ops.add(x + 1.0, x))


def test_times_name_kernels_and_parts():
    ops = GpuOps(HostDevice())
    x = torch.ones(4, 64)
    program = ops.workspace().program(timed=True)
    with program.recording():
        y = ops.add(x, x)
        program.mark("first")
        ops.add(y, x)
    assert [t.nanoseconds for t in program.times()] == [0, 0]
    program.run_timed()
    assert [t.part for t in program.times()] == ["first", ""]
    assert all(t.nanoseconds > 0 and t.operation for t in program.times())


def test_one_program_records_at_a_time():
    ops = GpuOps(HostDevice())
    program, other = ops.workspace().program(), ops.workspace().program()
    with program.recording(), pytest.raises(EngineError, match="recorded already"), other.recording():
        pass
    with other.recording():
        ops.add(torch.ones(1, 8), torch.ones(1, 8))
    assert (len(program), len(other)) == (0, 1)
