"""The index of versions, by itself."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.hybrid_clock import HybridClock, time_of
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import publish_head
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from brokerweave.node.retained import (
    BUCKETS,
    MemoryStore,
    RetainedIndex,
    RetainedSettings,
    RetainedVerdict,
)
from brokerweave.node.retained_wire import answer, decode_have, encode_ask

NOW = 1_000_000.0


def stamp(seconds: float, counter: int = 0) -> int:
    return int(seconds * 1000) << 16 | counter


def offer(
    index: RetainedIndex, topic: str, payload: bytes, at: int, origin: str = "a", now: float = NOW
) -> RetainedVerdict:
    frame = codec.encode(Publish(topic, payload, retain=True), 4)
    return index.offer(at, origin, frame, publish_head(frame, 4), 4, now, now)


@pytest.fixture
def index() -> RetainedIndex:
    return RetainedIndex(RetainedSettings(), MemoryStore())


class TestTheClock:
    @given(st.lists(st.tuples(st.floats(0, 1e9), st.integers(1, 100_000)), max_size=20))
    def test_never_gives_a_stamp_twice_however_time_jumps(self, calls: list[tuple[float, int]]) -> None:
        clock, last = HybridClock(3600), 0
        for now, count in calls:
            first = clock.reserve(count, now)
            assert first > last
            last = first + count - 1

    def test_goes_past_what_it_sees_unless_that_is_too_far_ahead(self) -> None:
        clock = HybridClock(60)
        assert clock.see(stamp(NOW + 59), NOW)
        assert clock.reserve(1, NOW) > stamp(NOW + 59)
        assert not clock.see(stamp(NOW + 61), NOW)
        assert time_of(clock.reserve(1, NOW)) < NOW + 60


class TestVersions:
    def test_the_highest_wins_in_whatever_order_they_come(self) -> None:
        versions = [(b"x", stamp(1), "a"), (b"y", stamp(1), "b"), (b"", stamp(2), "a"), (b"z", stamp(2), "b")]
        winners = set()
        for order in permutations(versions):
            index = RetainedIndex(RetainedSettings(tombstone_age=1e9), MemoryStore())
            for payload, at, origin in order:
                offer(index, "t", payload, at, origin)
            entry = index.get("t")
            assert entry is not None
            winners.add((entry.rank, index.frame("t"), index.fingerprints))
        assert len(winners) == 1

    def test_of_one_stamp_a_deletion_wins(self, index: RetainedIndex) -> None:
        offer(index, "t", b"x", stamp(NOW), "z")
        assert offer(index, "t", b"", stamp(NOW), "a") is RetainedVerdict.NEW

    def test_the_same_publication_is_known_and_an_older_one_stale(self, index: RetainedIndex) -> None:
        assert offer(index, "t", b"x", stamp(2)) is RetainedVerdict.NEW
        assert offer(index, "t", b"x", stamp(2)) is RetainedVerdict.KNOWN
        assert offer(index, "t", b"x", stamp(1)) is RetainedVerdict.STALE

    def test_equal_payloads_of_two_origins_at_one_time_are_two_publications(
        self, index: RetainedIndex
    ) -> None:
        offer(index, "t", b"x", stamp(1), "a")
        assert offer(index, "t", b"x", stamp(1), "b") is not RetainedVerdict.KNOWN

    def test_survive_a_restart_and_the_clock_goes_on_after_them(self) -> None:
        store = MemoryStore()
        before = RetainedIndex(RetainedSettings(), store)
        offer(before, "t", b"x", stamp(NOW + 100))
        after = RetainedIndex(RetainedSettings(), store)
        assert after.fingerprints == before.fingerprints
        assert after.bytes == before.bytes
        assert after.clock.reserve(1, NOW) > stamp(NOW + 100)


class TestPurging:
    def test_a_tombstone_goes_at_its_age_and_is_not_taken_again(self, index: RetainedIndex) -> None:
        offer(index, "t", b"", stamp(NOW))
        index.purge(NOW + index.settings.tombstone_age - 1)
        assert len(index) == 1
        late = NOW + index.settings.tombstone_age + 1
        index.purge(late)
        assert (len(index), index.bytes, any(index.fingerprints), index.mortal) == (0, 0, False, False)
        offer(index, "t", b"", stamp(NOW), now=late)
        assert len(index) == 0

    def test_an_expired_message_becomes_the_same_tombstone_everywhere(self) -> None:
        indexes = [RetainedIndex(RetainedSettings(), MemoryStore()) for _ in range(2)]
        packet = Publish("t", b"x", retain=True, properties=((Property.MESSAGE_EXPIRY_INTERVAL, 10),))
        frame = codec.encode(packet, 5)
        for number, index in enumerate(indexes):
            index.offer(stamp(NOW), "a", frame, publish_head(frame, 5), 5, NOW, NOW)
            index.purge(NOW + 9)
            assert index.tombstones == 0
            index.purge(NOW + 10 + number)
            assert index.tombstones == 1
        assert indexes[0].fingerprints == indexes[1].fingerprints
        kept = indexes[0].frame("t")
        assert kept is not None
        assert (
            indexes[1].offer(stamp(NOW), "a", kept, publish_head(kept, 5), 5, NOW, NOW)
            is RetainedVerdict.KNOWN
        )
        assert (
            indexes[1].offer(stamp(NOW), "a", frame, publish_head(frame, 5), 5, NOW, NOW)
            is RetainedVerdict.STALE
        )


class TestComparing:
    @given(
        st.dictionaries(st.text("abc/", min_size=1, max_size=6), st.integers(1, 3), max_size=30),
        st.dictionaries(st.text("abc/", min_size=1, max_size=6), st.integers(1, 3), max_size=30),
    )
    def test_names_all_that_the_asker_could_send(self, mine: dict[str, int], theirs: dict[str, int]) -> None:
        asker, other = (RetainedIndex(RetainedSettings(), MemoryStore()) for _ in range(2))
        for topics, index in ((mine, asker), (theirs, other)):
            for topic, at in topics.items():
                offer(index, topic, b"x", stamp(at))
        have = decode_have(answer(encode_ask(7, 0, asker.fingerprints), other))
        assert (have.round, have.next) == (7, BUCKETS)
        lacking = {
            topic
            for number in have.buckets
            for topic, entry in asker.bucket(number).items()
            if entry.rank > have.ranks.get(topic, (0, 0))
        }
        assert lacking == {topic for topic, at in mine.items() if at > theirs.get(topic, 0)}

    def test_equal_indexes_have_nothing_to_say(self, index: RetainedIndex) -> None:
        for number in range(1000):
            offer(index, f"t/{number}", b"x", stamp(NOW, number))
        assert decode_have(answer(encode_ask(1, 0, index.fingerprints), index)).buckets == ()

    def test_a_large_difference_comes_in_pages(self, index: RetainedIndex) -> None:
        for number in range(5000):
            offer(index, f"a/rather/long/topic/{number}", b"x", stamp(NOW, number))
        asks, first, ranks = 0, 0, {}
        while first < BUCKETS:
            page = answer(encode_ask(1, first, (1,) * BUCKETS), index)
            assert len(page) < 100_000
            have = decode_have(page)
            ranks.update(have.ranks)
            first, asks = have.next, asks + 1
        assert asks > 1
        assert len(ranks) == 5000

    @pytest.mark.parametrize("payload", [b"", b"\0" * 7, b"\0\0\0\1\x02\0\0\0", b"\0\0\0\1\0\1\0\0abc"])
    def test_nonsense_is_refused(self, index: RetainedIndex, payload: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            answer(payload, index)
        with pytest.raises(RemoteProtocolError):
            decode_have(payload)
