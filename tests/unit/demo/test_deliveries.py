"""The arithmetic of the demo's summary."""

from __future__ import annotations

import pytest

from brokerweave.demo.deliveries import DeliverySummary, Key, Outage, SentMessage, summarise

ROW = ("a", "b", "c")
OUTAGE = Outage("b", begin=100.0, end=100.1, over=105.0)


def key(site: str, sequence: int = 1) -> Key:
    return site, "s1", sequence


def summary_of(
    messages: list[SentMessage], *, missing: tuple[str, ...] = (), again: dict[str, float] | None = None
) -> DeliverySummary:
    """Every message arrives everywhere after 0.1 s for each hop, but for `missing`; `again` come twice."""
    arrivals = {
        site: [
            (message.key, message.at + 0.1 * abs(ROW.index(message.key[0]) - place))
            for message in messages
            if site not in missing
        ]
        for place, site in enumerate(ROW)
    }
    for site, at in (again or {}).items():
        arrivals[site].append((messages[0].key, at))
    return summarise(ROW, messages, arrivals, OUTAGE)


def test_each_acknowledged_message_is_expected_at_every_site() -> None:
    summary = summary_of([SentMessage(key("a"), 90.0, 90.1), SentMessage(key("c"), 91.0, 91.1)])
    assert (summary.published, summary.expected, summary.delivered) == (2, 6, 6)
    assert summary.ok


def test_an_acknowledged_message_that_did_not_arrive_is_lost() -> None:
    summary = summary_of([SentMessage(key("a"), 90.0, 90.1)], missing=("c",))
    assert summary.lost == ((key("a"), "c"),)
    assert summary.delivered == 2
    assert not summary.ok


def test_a_message_that_was_never_acknowledged_is_neither_published_nor_lost() -> None:
    summary = summary_of([SentMessage(key("a"), 90.0, 90.1), SentMessage(key("b"), 99.0, None)], missing=())
    assert (summary.published, summary.unacknowledged, summary.expected) == (1, 1, 3)
    assert summary.ok


def test_nothing_published_is_a_failure() -> None:
    assert not summary_of([]).ok


@pytest.mark.parametrize(
    ("message", "again_at"),
    [
        pytest.param(
            SentMessage(key("b"), 100.05, 104.0), "a", id="its sensor had no acknowledgement at the kill"
        ),
        pytest.param(SentMessage(key("a"), 99.8, 99.9), "b", id="under way to the killed site"),
    ],
)
def test_a_copy_of_what_was_unacknowledged_at_the_kill_is_allowed(
    message: SentMessage, again_at: str
) -> None:
    summary = summary_of([message], again={again_at: 104.0})
    assert (summary.doubled_allowed, summary.doubled) == (1, ())
    assert summary.ok


@pytest.mark.parametrize(
    ("message", "again_at"),
    [
        pytest.param(SentMessage(key("a"), 99.8, 99.9), "c", id="between nodes that recognise copies"),
        pytest.param(SentMessage(key("a"), 102.0, 102.1), "b", id="published while the node was away"),
        pytest.param(SentMessage(key("a"), 90.0, 90.1), "b", id="long before the kill"),
        pytest.param(SentMessage(key("b"), 99.0, 99.1), "a", id="acknowledged before the kill"),
    ],
)
def test_any_other_copy_is_a_failure(message: SentMessage, again_at: str) -> None:
    summary = summary_of([message], again={again_at: 106.0})
    assert (summary.doubled_allowed, summary.doubled) == (0, ((message.key, again_at),))
    assert not summary.ok


def test_latency_is_told_by_hops_and_the_outage_apart() -> None:
    summary = summary_of([SentMessage(key("a", 1), 90.0, 90.1), SentMessage(key("a", 2), 102.0, 102.1)])
    assert [(each.hops, each.deliveries) for each in summary.latencies] == [(0, 1), (1, 1), (2, 1)]
    two_hops = summary.latencies[2]
    assert (two_hops.median, two_hops.p95, two_hops.longest_wait) == pytest.approx((0.2, 0.2, 0.2))
