"""Of each message one row stays, in whatever order and batches its copies come, from whichever logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.pipeline.jobs import resends
from brokerweave.pipeline.jobs.resends import Decision, ResendWindow, SentRow, decide

WINDOW = ResendWindow(length=1_000, skew=10)


def sent(message: int, log: str, sequence: int, received: int, *, dup: bool) -> SentRow:
    return SentRow("client", 7, "a/b", message, log, 1, sequence, received, dup)


@dataclass
class Silver:
    """What the job does around the decision."""

    rows: list[SentRow] = field(default_factory=list)
    open: tuple[SentRow, ...] = ()

    def take(self, batch: list[SentRow]) -> Decision:
        decision = decide(batch, self.rows, self.open, WINDOW)
        self.rows += [row for row in batch if row.position not in decision.dropped]
        self.open = decision.open
        return decision


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[SentRow], list[int]]:
    """The rows of some messages, shuffled, and where batches end. Later copies are received later."""
    rows = []
    for message in range(draw(st.integers(1, 4))):
        copies, recorded = draw(st.integers(0, 3)), draw(st.booleans())
        times = sorted(draw(st.lists(st.integers(0, 900), min_size=copies + 1, max_size=copies + 1)))
        logs = [draw(st.sampled_from("LMN")) for _ in times]
        for number, time in enumerate(times):
            if number or recorded:
                rows.append(sent(message, logs[number], message * 10 + number, time, dup=number > 0))
    shuffled = draw(st.permutations(rows))
    return shuffled, sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))


def batches(rows: list[SentRow], ends: list[int]) -> list[list[SentRow]]:
    return [rows[start:end] for start, end in zip([0, *ends], [*ends, len(rows)], strict=True)]


@given(deliveries())
def test_each_message_stays_exactly_once_in_any_order_and_any_batches(
    made: tuple[list[SentRow], list[int]],
) -> None:
    silver = Silver()
    for batch in batches(*made):
        silver.take(batch)
    kept = [row.payload_hash for row in silver.rows]
    assert sorted(kept) == sorted({row.payload_hash for row in made[0]})


@given(deliveries())
def test_a_batch_that_is_replayed_is_decided_as_before_whether_silver_has_it_or_not(
    made: tuple[list[SentRow], list[int]],
) -> None:
    silver = Silver()
    for batch in batches(*made):
        open_before, rows_before = silver.open, list(silver.rows)
        first = silver.take(batch)
        for rows in (rows_before, silver.rows):
            assert decide(batch, rows, open_before, WINDOW) == first


def test_a_new_message_with_an_old_packet_id_and_payload_is_no_copy() -> None:
    silver = Silver()
    silver.take([sent(1, "L", number, number * 10, dup=False) for number in range(5)])
    silver.take([sent(1, "L", 5, 50, dup=True), sent(1, "L", 6, 60, dup=False)])
    assert [row.sequence for row in silver.rows] == [0, 1, 2, 3, 4, 6]


def test_a_copy_without_an_original_is_kept() -> None:
    silver = Silver()
    silver.take([sent(1, "L", 1, 10, dup=True)])
    assert len(silver.rows) == 1


def test_a_copy_that_came_first_takes_the_place_of_one_late_original_not_of_all() -> None:
    silver = Silver()
    silver.take([sent(1, "M", 1, 500, dup=True)])
    silver.take([sent(1, "L", number, 400 + number, dup=False) for number in range(3)])
    silver.take([sent(1, "L", 9, 409, dup=False)])
    assert [(row.log_id, row.sequence) for row in silver.rows] == [("M", 1), ("L", 0), ("L", 1), ("L", 9)]
    assert silver.open == ()


def test_a_resend_after_the_window_is_kept() -> None:
    silver = Silver()
    silver.take([sent(1, "L", 1, 0, dup=False)])
    silver.take([sent(1, "L", 2, 1_001, dup=True)])
    assert len(silver.rows) == 2


def test_another_nodes_clock_may_be_behind_by_the_skew_and_no_more() -> None:
    for behind, kept in ((10, 1), (11, 2)):
        silver = Silver()
        silver.take([sent(1, "L", 1, 100 + behind, dup=False), sent(1, "M", 1, 100, dup=True)])
        assert len(silver.rows) == kept


def test_open_copies_are_bounded_in_number_and_age() -> None:
    old = [sent(number, "L", number, 0, dup=True) for number in range(5)]
    new = sent(99, "L", 99, resends.OPEN_FOR + 1, dup=True)
    assert decide([new], [], old, WINDOW).open == (new,)
    many = [sent(number, "L", number, number, dup=True) for number in range(resends.OPEN_MOST + 3)]
    assert decide([], [], many, WINDOW).open == tuple(many[3:])
