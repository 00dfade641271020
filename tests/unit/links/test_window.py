from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import BrokerweaveError
from brokerweave.links.window import DuplicateWindow


class Model:
    """The same promises with one set per origin and epoch, and no thought of memory."""

    def __init__(self, width: int, origins: int, epochs: int) -> None:
        self.width, self.origins, self.epochs = width, origins, epochs
        self.seen: OrderedDict[str, dict[int, set[int]]] = OrderedDict()
        self.suppressed = self.refused_old = self.evicted = 0

    def accept(self, origin: str, epoch: int, first: int, count: int) -> list[int]:
        epochs = self.seen.setdefault(origin, {})
        self.seen.move_to_end(origin)
        if len(self.seen) > self.origins:
            self.seen.popitem(last=False)
            self.evicted += 1
        if epoch not in epochs and sum(known > epoch for known in epochs) >= self.epochs:
            self.refused_old += count
            return []
        seen = epochs.setdefault(epoch, set())
        for outdated in sorted(epochs)[: -self.epochs]:
            del epochs[outdated]
        floor = max(seen, default=-1) - self.width
        fresh = []
        for offset, sequence in enumerate(range(first, first + count)):
            if sequence <= floor:
                self.refused_old += 1
            elif sequence in seen:
                self.suppressed += 1
            else:
                fresh.append(offset)
        seen.update(first + offset for offset in fresh)
        return fresh


def flat(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for start, count in ranges for offset in range(start, start + count)]


# Sequences around the borders of bitmaps, and near each other, so that runs overlap.
firsts = st.one_of(st.integers(0, 60), st.integers(1000, 1050), st.integers(0, 8000), st.just(2**40))
arrivals = st.tuples(
    st.sampled_from("abc"), st.integers(1, 4), firsts, st.integers(1, 3000) | st.integers(1, 20)
)


@given(
    st.sampled_from([1, 7, 1024, 1500, 5000]),
    st.integers(1, 3),
    st.integers(2, 3),
    st.lists(arrivals, max_size=25),
    st.integers(0, 25),
)
def test_the_window_agrees_with_a_naive_one(
    width: int, origins: int, epochs: int, runs: list[tuple[str, int, int, int]], restart_at: int
) -> None:
    window, model = DuplicateWindow(width, origins, epochs), Model(width, origins, epochs)
    for position, run in enumerate(runs):
        if position == restart_at:
            stored = window.snapshot()
            window.restore(stored)
            assert window.snapshot() == stored
        origin, epoch, first, count = run
        ranges = window.accept(*run)
        assert all(window.knows(origin, epoch, each) for each in range(first, first + count) if ranges)
        assert flat(ranges) == model.accept(*run)
        assert all(a + n < b for (a, n), (b, _) in pairwise(ranges)), "ranges are merged"
    counters = (window.suppressed, window.refused_old, window.evicted)
    assert counters == (model.suppressed, model.refused_old, model.evicted)


def test_it_knows_what_was_seen_and_what_is_too_old_to_tell() -> None:
    window = DuplicateWindow(100)
    window.accept("a", 1, 1_000, 2)
    known = [window.knows("a", 1, sequence) for sequence in (900, 901, 999, 1_000, 1_001, 1_002)]
    assert known == [True, True, False, True, True, False]
    assert not window.knows("a", 2, 1_000)
    assert not window.knows("b", 1, 1_000)


def test_a_run_that_overlaps_gives_only_its_new_parts() -> None:
    window = DuplicateWindow(1000)
    window.accept("a", 1, 5, 2)
    window.accept("a", 1, 9, 1)
    assert window.accept("a", 1, 4, 8) == [(0, 1), (3, 2), (6, 2)]
    assert window.suppressed == 3


def test_memory_is_bounded_by_the_width_however_far_sequences_jump() -> None:
    window = DuplicateWindow(width=4096)
    for jump in range(2000):
        window.accept("a", 1, jump * 3000, 3)
    assert len(window.snapshot()) < 8 * 150


def test_what_comes_late_from_an_origin_that_was_started_often_since_is_accepted_once() -> None:
    window = DuplicateWindow(width=100_000)
    for epoch in range(2, 10):
        window.accept("a", epoch, 1, 10)
    assert window.accept("a", 1, 1, 10) == [(0, 10)]
    assert window.accept("a", 1, 1, 10) == []
    assert window.accept("a", 5, 8, 5) == [(3, 2)]


def test_memory_is_bounded_however_often_an_origin_is_started() -> None:
    window = DuplicateWindow(width=4096)
    window.accept("a", 1, 1, 10)
    for epoch in range(2, 100):
        for first in range(0, 8192, 2):
            window.accept("a", epoch, first, 1)
        assert len(window.snapshot()) < 3 * 150 * 6 + 16 * 30
    assert window.accept("a", 98, 8001, 1) == [(0, 1)]
    assert window.accept("a", 90, 8001, 1) == []  # there was no room for what was seen of it
    assert window.accept("a", 1, 11, 1) == []


def test_a_full_window_is_stored_in_few_bytes() -> None:
    window = DuplicateWindow(width=1 << 20)
    for first in range(0, 1 << 20, 4096):
        window.accept("a", 1, first, 4096)
    assert len(window.snapshot()) < 12_000


@given(st.binary(max_size=100))
def test_a_damaged_snapshot_restores_or_raises_our_own_error(data: bytes) -> None:
    window = DuplicateWindow(100)
    try:
        window.restore(data)
    except BrokerweaveError:
        assert window.snapshot() == b""


def test_the_longest_origin_that_a_run_may_have_is_stored_with_its_lane() -> None:
    window, again = DuplicateWindow(100), DuplicateWindow(100)
    window.accept("x" * 255 + "/63", 1, 1, 3)
    again.restore(window.snapshot())
    assert again.accept("x" * 255 + "/63", 1, 3, 1) == []


def test_a_shortened_snapshot_is_an_error() -> None:
    window = DuplicateWindow(100)
    window.accept("a", 1, 1, 3)
    with pytest.raises(BrokerweaveError):
        DuplicateWindow(100).restore(window.snapshot()[:-1])
