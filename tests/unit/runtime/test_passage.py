"""The passage, compiled and not: every test runs over both."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.mqtt.wire import MAX_PACKET, PINGREQ, A, B, frame
from tests.unit.variants import BOTH

pytestmark = pytest.mark.parametrize("module", BOTH)

SUBACK = 1 << 9


class Way:
    """What a passage leads to, and what it leaves to others."""

    def __init__(self, module: SimpleNamespace, room: int = 1 << 20) -> None:
        self.scanner = module.Scanner(SUBACK, MAX_PACKET)
        self.scanner.version = 4
        self.passage = module.Passage(self.scanner, self.attended_append)
        self.attended: list[bytes] = []
        self.written: list[bytes] = []
        self.rest: list[bytes] = []
        self.room = room
        self.waiting, self.closing = 0, False
        self.passage.lead_to(9, self.write, self.rest.append, lambda: self.waiting, lambda: self.closing)
        self.passage.open = True

    def attended_append(self, data: bytes) -> None:
        self.attended.append(data)

    def write(self, file: int, data: bytes) -> int:
        assert file == 9
        if self.room < 0:
            raise BlockingIOError
        self.written.append(data[: self.room])
        return min(len(data), self.room)


def test_an_open_passage_writes_what_concerns_nobody_and_hands_over_the_rest(module: SimpleNamespace) -> None:
    way = Way(module)
    suback = frame(0x90, b"\x00\x01\x00")
    for chunk in (A + B, A + suback, A[:3], PINGREQ):
        way.passage(chunk)
    assert way.written == [A + B, PINGREQ]
    assert way.attended == [A + suback, A[:3]]
    assert way.rest == []


def test_a_passage_passes_nothing_while_part_of_a_frame_waits(module: SimpleNamespace) -> None:
    way = Way(module)
    way.scanner.feed(A[:3])
    way.passage(B)
    assert (way.written, way.attended) == ([], [B])


@pytest.mark.parametrize("state", ["shut", "waiting", "closing"])
def test_a_passage_writes_only_while_open_to_a_way_that_is_clear(module: SimpleNamespace, state: str) -> None:
    way = Way(module)
    way.passage.open = state != "shut"
    way.waiting = 5 if state == "waiting" else 0
    way.closing = state == "closing"
    way.passage(A)
    assert (way.written, way.attended) == ([], [A])


@pytest.mark.parametrize("room", [-1, 0, 4])
def test_what_a_passage_could_not_write_goes_where_the_rest_does(module: SimpleNamespace, room: int) -> None:
    way = Way(module, room)
    way.passage(A)
    assert b"".join(way.written) + b"".join(way.rest) == A
    assert way.rest
    assert way.attended == []


def test_publications_and_bytes_are_counted_once_whichever_way_a_chunk_takes(module: SimpleNamespace) -> None:
    way = Way(module)
    suback = frame(0x90, b"\x00\x01\x00")
    way.passage(A + PINGREQ + B)
    assert (way.scanner.publishes, way.scanner.passed) == (2, len(A + PINGREQ + B))
    way.waiting = 5
    for chunk in (A, B + suback, A[:3], A[3:]):
        way.passage(chunk)
        way.scanner.feed(way.attended[-1])  # as the pair does
    assert way.scanner.publishes == 5
    assert way.scanner.passed == len(A + PINGREQ + B) + len(A + B + suback + A)
