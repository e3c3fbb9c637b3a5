"""Windows as rows."""

from strata.core.window import Window
from strata.runtime.pack import pack, scored_rows

WINDOWS = [Window(2, 5, (7, 8, 9), 2), Window(0, 0, (4,), 0), Window(1, 3, (6, 6), 1)]


def test_rows_stand_in_the_order_of_the_windows():
    tokens, rows = pack(WINDOWS)
    assert tokens.tolist() == [7, 8, 9, 4, 6, 6]
    assert rows.slot.tolist() == [2, 2, 2, 0, 1, 1]
    assert rows.position.tolist() == [5, 6, 7, 0, 3, 4]
    assert rows.segments.tolist() == [[2, 0, 3], [0, 3, 1], [1, 4, 2]]


def test_the_last_rows_of_each_window_are_scored():
    assert scored_rows(WINDOWS) == [1, 2, 5]
    assert scored_rows([Window(0, 0, (1, 2), 0)]) == []
