"""When a drafter rests."""

from strata.speculate.rest import EVERY, Rest


def test_it_rests_when_it_is_not_worth_asking_and_is_looked_at_again():
    rest = Rest()
    assert all(rest.reads_next() for _ in range(5))
    for _ in range(60):
        rest.step(0, 2)
    assert not rest.rests
    for _ in range(60):
        rest.step(0, 2)
    assert rest.rests
    assert sum(rest.reads_next() for _ in range(10 * EVERY)) == 10
    rest.step(0, 0)
    for _ in range(10):
        rest.step(1, 1)
    assert not rest.rests and rest.reads_next()


def test_one_in_eight_steps_keeps_it_awake():
    rest = Rest()
    for turn in range(2000):
        rest.step(int(turn % 8 == 0), 1)
    assert not rest.rests
