"""Looks at steps without drafts: soon, then seldom, and soon again after a surprise."""

from strata.speculate.looks import FIRST, LAST, SURPRISE, Looks


def gaps(looks, count):
    """Steps with drafts before each of the next looks."""
    found, steps = [], 0
    while len(found) < count:
        if looks.due(4):
            found.append(steps)
            steps = 0
            looks.ran(4, False)
        else:
            looks.ran(4, True)
            steps += 1
    return found


def test_soon_then_seldom():
    assert gaps(Looks(), 7) == [FIRST, 16, 32, 64, LAST, LAST, LAST]


def test_soon_again_after_a_surprise_and_only_then():
    looks = Looks()
    gaps(looks, 6)
    looks.saw(4, 1.0, 1 / (0.99 * SURPRISE))
    assert gaps(looks, 1) == [LAST]
    looks.saw(4, 1.0, 1.01 * SURPRISE)
    assert gaps(looks, 2) == [FIRST, 16]
    looks.saw(3, 9.0, 1.0)
    assert gaps(looks, 1) == [32]


def test_a_step_that_has_none_anyway_is_a_look():
    looks = Looks()
    for _ in range(10 * FIRST):
        assert not looks.due(4)
        looks.ran(4, True)
        looks.ran(4, False)
