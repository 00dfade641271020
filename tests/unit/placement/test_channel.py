from __future__ import annotations

from random import Random

from brokerweave.placement.channel import HELLO, MOST_WAITING, WELCOME, Channel, OpenedDatagram
from tests.unit.placement.air import Air

A, B = ("a", 1), ("b", 1)


class End:
    def __init__(self, air: Air, address: tuple[str, int], boot: int, key: bytes = b"k" * 16) -> None:
        self.channel = Channel(key, boot, air.sender(address))
        self.heard: list[OpenedDatagram] = []
        air.join(address, self)

    def hear(self, data: bytes, source: tuple[str, int], now: float) -> None:
        heard = self.channel.hear(data, source, now)
        if heard is not None:
            self.heard.append(heard)

    def got(self) -> list[bytes]:
        return [each.content for each in self.heard]

    def counted(self) -> dict[str, int]:
        return {cause: count for cause, count in self.channel.refused.items() if count}


def pair() -> tuple[Air, End, End]:
    air = Air()
    return air, End(air, A, 11), End(air, B, 22)


def test_what_is_said_to_an_unknown_peer_arrives_after_an_introduction() -> None:
    air, a, b = pair()
    assert not a.channel.say(B, 7, b"one", air.now)
    air.run(1)
    assert a.channel.say(B, 7, b"two", air.now)
    air.run(1)
    assert b.got() == [b"one", b"two"]
    assert b.counted() == {"misdirected": 1}, "the hello"
    assert len(air.sent) == 4


def test_an_answer_needs_no_introduction() -> None:
    air, a, b = pair()
    a.channel.say(B, 7, b"ask", air.now)
    air.run(1)
    b.channel.answer(b.heard[0], 8, b"answer")
    air.run(1)
    assert (a.got(), a.heard[0].kind, a.heard[0].boot) == ([b"answer"], 8, 22)


def test_a_peer_that_restarted_is_found_with_the_first_datagram_that_it_gets() -> None:
    air, a, _ = pair()
    a.channel.say(B, 7, b"one", air.now)
    air.run(1)
    b = End(air, B, 33)
    a.channel.say(B, 7, b"lost", air.now)
    air.run(1)
    a.channel.say(B, 7, b"two", air.now)
    air.run(1)
    assert b.got() == [b"two"]


def test_who_has_another_key_is_neither_heard_nor_answered() -> None:
    air, _, b = pair()
    stranger = End(air, ("s", 1), 44, key=b"another key, of others")
    stranger.channel.say(B, 7, b"let me in", air.now)
    air.run(5)
    assert (b.got(), b.counted()) == ([], {"unauthentic": 1})
    assert all(source != B for _, source, _ in air.sent)


def test_a_replay_changes_nothing_and_is_counted() -> None:
    air, a, b = pair()
    a.channel.say(B, 7, b"one", air.now)
    air.run(1)
    for data, _, to in list(air.sent):
        air.send(data, ("thief", 1), to)
    air.run(1)
    assert b.got() == [b"one"]
    assert b.counted()["replayed"] == 1
    assert a.channel.say(B, 7, b"two", air.now)
    air.run(1)
    assert b.got() == [b"one", b"two"], "the replayed welcome did not change where b is"


def test_what_was_recorded_before_a_restart_is_answered_with_no_more_than_its_own_size() -> None:
    air, a, _ = pair()
    a.channel.say(B, 7, b"one", air.now)
    air.run(1)
    recorded = [data for data, _, to in air.sent if to == B]
    b = End(air, B, 33)
    before = len(air.sent)
    for data in recorded:
        air.send(data, ("thief", 1), B)
    air.run(1)
    answers = [data for data, source, _ in air.sent[before:] if source == B]
    assert b.got() == []
    assert max(map(len, answers)) <= min(map(len, recorded))


def test_a_welcome_that_nobody_asked_for_is_refused() -> None:
    air, a, b = pair()
    b.channel.tell(A, 11, WELCOME, b"")
    air.run(1)
    assert a.counted() == {"malformed": 1}
    assert not a.channel.knows(B, air.now)


def test_garbage_is_counted_by_its_cause() -> None:
    air, _, b = pair()
    random = Random(1)
    for size in (0, 1, 41, 42, 100, 1400, 1401, 9000):
        air.send(random.randbytes(size), A, B)
    air.send(b"\x01" + random.randbytes(60), A, B)
    air.run(1)
    assert b.got() == []
    assert sum(b.counted().values()) == 9
    assert b.counted()["too_long"] == 2


def test_what_waits_for_a_silent_peer_is_bounded_and_grows_old() -> None:
    air, a, _ = pair()
    air.leave(B)
    for number in range(3 * MOST_WAITING):
        a.channel.say(B, 7, b"%d" % number, air.now)
    assert len(air.sent) == 1, "one hello a second"
    air.run(10)
    b = End(air, B, 22)
    a.channel.say(B, 7, b"last", air.now)
    air.run(1)
    assert b.got() == [b"last"]
    assert b.channel.refused["misdirected"] == 1
    assert HELLO == 1
