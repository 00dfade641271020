"""What counts as lost, doubled or out of order."""

from __future__ import annotations

import pytest

from tests.support.verdicts import BrokenPromise, all_arrived, in_order, keeps, once_each


def test_what_is_as_promised_passes() -> None:
    in_order([1, 2, 2], [1, 2, 2])
    once_each([2, 1], [1, 2])
    all_arrived([3, 2, 2, 1], [1, 2])
    keeps(True, "never said")


def test_what_is_lost_is_named() -> None:
    with pytest.raises(BrokenPromise, match=r"at b: 1 lost \[3\]"):
        once_each([1, 2], [1, 2, 3], "b")
    with pytest.raises(BrokenPromise, match=r"1 lost \[3\]"):
        all_arrived([1, 2, 2], [1, 2, 3])


def test_what_is_doubled_is_named() -> None:
    with pytest.raises(BrokenPromise, match=r"0 lost \[\], 1 too many \[2\]"):
        in_order([1, 2, 2], [1, 2])


def test_what_is_out_of_order_is_named() -> None:
    with pytest.raises(BrokenPromise, match=r"out of order from number 1 on: \[3, 2\] instead of \[2, 3\]"):
        in_order([1, 3, 2], [1, 2, 3])


def test_a_promise_that_is_judged_elsewhere_is_broken_in_its_own_words() -> None:
    with pytest.raises(BrokenPromise, match="two were lost"):
        keeps(False, "two were lost")
