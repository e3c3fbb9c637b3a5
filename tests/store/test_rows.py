"""A table in shards is one table."""

import pytest
import torch

from models.made import ops_of
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS
from strata.store.rows import RowTable

VALUES = torch.arange(11 * 8, dtype=torch.float32).view(11, 8)


def weight(values):
    return Weight(FORMATS["F32"], len(values), 8, (values.contiguous().view(torch.uint8).view(len(values), -1),))


@pytest.mark.parametrize("cuts", [(11,), (4, 7), (1, 1, 9), (3, 4, 4)])
@pytest.mark.parametrize("make", [NaiveOps, ops_of])
def test_rows_are_numbered_through_all_shards(cuts, make):
    table = RowTable([weight(part) for part in torch.split(VALUES, list(cuts))])
    ids = torch.tensor([10, 0, 3, 4, 0, 9, 5])
    assert (table.rows, table.cols) == (11, 8)
    assert torch.equal(table.gather(make(), ids), VALUES[ids])
    assert table.gather(make(), ids[:0]).shape == (0, 8)


@pytest.mark.parametrize("cuts", [(11,), (4, 7)])
@pytest.mark.parametrize("bad", [-1, 11])
def test_a_row_outside_is_refused(cuts, bad):
    table = RowTable([weight(part) for part in torch.split(VALUES, list(cuts))])
    with pytest.raises(IndexError):
        table.gather(ops_of(), torch.tensor([0, bad]))
