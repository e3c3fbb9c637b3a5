"""What `--draft` means."""

import pytest

from strata.core.errors import UsageError
from strata.plan.drafting import choose_draft


def test_auto_drafts_on_the_cpu_and_not_where_it_could_not_be_measured():
    found = choose_draft("auto", "cpu", False)
    assert found.drafts and found.depth is None and found.choice.value == "auto"
    assert not choose_draft("auto", "cuda", False).drafts
    traced = choose_draft("auto", "cpu", True)
    assert not traced.drafts and "routing" in traced.choice.reason


def test_off_and_a_number_are_what_was_asked():
    assert not choose_draft("off", "cpu", False).drafts
    found = choose_draft("3", "cuda", False)
    assert (found.drafts, found.depth, found.choice.value) == (True, 3, 3)


@pytest.mark.parametrize("asked", ["0", "17", "-1", "on", "", "1.5"])
def test_anything_else_is_refused(asked):
    with pytest.raises(UsageError, match="expected auto, off or a number from 1 to 16"):
        choose_draft(asked, "cpu", False)


def test_a_number_beside_routing_from_a_file_is_refused():
    with pytest.raises(UsageError, match="not beside --routing-trace"):
        choose_draft("2", "cpu", True)
