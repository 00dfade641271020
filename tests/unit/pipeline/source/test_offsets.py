"""Offsets, shares and parts: checked against logs whose every row is known."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.edgelog.layout import Position
from brokerweave.errors import ConfigError
from brokerweave.pipeline.source import offsets
from brokerweave.pipeline.source.offsets import Extent, Range, ReadPosition, RowsGone

A, B = "a" * 32, "b" * 32


@dataclass(frozen=True)
class Log:
    """A log of which every row was kept, was lost with its epoch's tail, or was trimmed."""

    kept: tuple[Position, ...]
    extent: Extent

    def between(self, after: Position, up_to: Position) -> list[Position]:
        return [row for row in self.kept if after < row <= up_to]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Epochs of a few rows, the oldest of which may be gone. A position may be of a row that was lost."""
    rows: list[Position] = []
    following = 1
    for epoch in range(1, draw(st.integers(1, 4)) + 1):
        count = draw(st.integers(0, 8))
        rows += [Position(epoch, following + number) for number in range(count)]
        following += count
    kept = tuple(rows[draw(st.integers(0, len(rows))) :])
    starts = tuple(
        row for number, row in enumerate(kept) if not number or kept[number - 1].epoch != row.epoch
    )
    end = Position(epoch, following - 1)
    return Log(kept, Extent(end, starts))


positions = st.builds(Position, st.integers(0, 5), st.integers(0, 35))


@given(logs(), positions)
def test_rows_are_counted_as_the_log_holds_them(log: Log, after: Position) -> None:
    assert log.extent.rows_after(after) == len(log.between(after, log.extent.end))


@given(logs(), positions, st.integers(0, 40))
def test_going_forward_takes_exactly_that_many_rows(log: Log, after: Position, rows: int) -> None:
    there = log.extent.rows_after(after)
    reached = log.extent.forward(after, min(rows, there))
    assert len(log.between(after, reached)) == min(rows, there)


@given(logs(), positions, st.integers(1, 9))
def test_parts_hold_each_row_of_the_range_once_and_in_order(log: Log, after: Position, size: int) -> None:
    parts = offsets.ranges({A: ReadPosition(after)}, {A: ReadPosition(log.extent.end)}, size)
    read = [row for part in parts for row in log.between(part.after, part.up_to)]
    assert read == log.between(after, log.extent.end)
    assert all(part.after < part.up_to for part in parts)


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 50)), st.integers(0, 120))
def test_shares_are_fair(wanted: dict[str, int], limit: int) -> None:
    shares = offsets.fair_shares(limit, wanted)
    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) == min(limit, sum(wanted.values()))
    for log_id, share in shares.items():
        assert share <= wanted[log_id]
        if share < wanted[log_id]:  # who got less than it wanted has no less than anyone, but for one row
            assert all(share >= other - 1 for other in shares.values())


def test_a_limit_of_one_row_goes_to_the_longest_backlog() -> None:
    assert offsets.fair_shares(1, {"a": 3, "b": 9, "c": 5}) == {"a": 0, "b": 1, "c": 0}


@given(st.dictionaries(st.sampled_from("abc"), logs(), min_size=1), st.integers(1, 10))
def test_batches_reach_the_end_with_every_row_once_and_none_too_large(
    there: dict[str, Log], limit: int
) -> None:
    extents = {log_id: log.extent for log_id, log in there.items()}
    at = {log_id: ReadPosition(extent.begin) for log_id, extent in extents.items()}
    read: dict[str, list[Position]] = {log_id: [] for log_id in there}
    for _ in range(200):
        end = offsets.next_offsets(at, extents, limit)
        if end == at:
            break
        parts = offsets.ranges(at, end, 3)
        found = {part: there[part.log_id].between(part.after, part.up_to) for part in parts}
        assert sum(len(rows) for rows in found.values()) <= limit
        for part, rows in found.items():
            read[part.log_id] += rows
        at = end
    assert read == {log_id: list(log.kept) for log_id, log in there.items()}


@given(logs())
def test_a_log_without_new_rows_keeps_its_offset_even_over_a_start_of_its_node(log: Log) -> None:
    at = log.kept[-1] if log.kept else log.extent.end
    restarted = Extent(Position(log.extent.end.epoch + 1, log.extent.end.sequence), log.extent.starts)
    assert offsets.next_offsets({A: ReadPosition(at)}, {A: restarted}) == {A: ReadPosition(at)}


def test_a_log_that_is_silent_keeps_its_offset() -> None:
    start = {A: ReadPosition(Position(1, 5)), B: ReadPosition(Position(1, 7))}
    end = offsets.next_offsets(start, {B: Extent(Position(1, 9), (Position(1, 1),))})
    assert end == {A: ReadPosition(Position(1, 5)), B: ReadPosition(Position(1, 9))}


def test_trimmed_rows_stop_the_query_with_a_line_that_names_the_option() -> None:
    trimmed = Extent(Position(1, 100), (Position(1, 51),))
    with pytest.raises(RowsGone, match=r"40 rows after 1:10 of log a+ were trimmed.*onTrimmed = skip"):
        offsets.next_offsets({A: ReadPosition(Position(1, 10))}, {A: trimmed})


def test_trimmed_rows_are_counted_in_the_offset_if_the_query_goes_on() -> None:
    trimmed = Extent(Position(1, 100), (Position(1, 51),))
    end = offsets.next_offsets({A: ReadPosition(Position(1, 10), 2)}, {A: trimmed}, limit=20, skip=True)
    assert end == {A: ReadPosition(Position(1, 70), 42)}


def test_a_log_that_joins_brings_its_offset_and_no_rows() -> None:
    assert offsets.ranges({}, {A: ReadPosition(Position(1, 9))}, 100) == []


def test_a_range_is_cut_into_even_parts() -> None:
    parts = offsets.ranges({A: ReadPosition(Position(1, 0))}, {A: ReadPosition(Position(1, 250))}, 100)
    assert parts == [
        Range(A, Position(1, 0), Position(1, 83)),
        Range(A, Position(1, 83), Position(1, 166)),
        Range(A, Position(1, 166), Position(1, 250)),
    ]


@given(st.dictionaries(st.sampled_from([A, B]), st.builds(ReadPosition, positions, st.integers(0, 9))))
def test_offsets_survive_the_checkpoint_and_are_the_same_text_in_any_order(
    marks: dict[str, ReadPosition],
) -> None:
    text = json.dumps(offsets.encode(marks))
    assert offsets.decode(json.loads(text)) == marks
    assert json.dumps(offsets.encode(dict(reversed(marks.items())))) == text


def test_an_offset_may_be_written_as_commands_print_it() -> None:
    assert offsets.decode({A: "2:500"}) == {A: ReadPosition(Position(2, 500))}


@pytest.mark.parametrize("value", [[1], [1, 2, 3, 4], "2", None, ["x", 1], {"epoch": 1}])
def test_an_offset_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"\[EPOCH, SEQUENCE\]"):
        offsets.decode({A: value})
