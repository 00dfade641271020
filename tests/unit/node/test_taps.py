"""Taps: which topics, which share, and that a core with taps hands over what local clients publish."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import publish_head, split
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.node.taps import Tap, Taps
from brokerweave.plugin import Route
from brokerweave.session.acl import parse
from tests.unit.node.network import Client, Network


class MemoryRecorder:
    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.resent: list[int] = []
        self.payloads: list[bytes] = []

    def record(self, client: str, version: int, count: int, blob: bytes, resent: Sequence[int]) -> None:
        frames = split(blob)
        assert len(frames) == count
        for frame in frames:
            head = publish_head(frame, version)
            self.rows.append((client, head.topic.decode()))
            self.payloads.append(frame[head.payload_start :])
        self.resent += resent

    def write(self) -> None: ...


def test_a_tap_takes_its_topics_without_what_it_excludes() -> None:
    taps = Taps([Tap(("s/#", "x"), ("s/secret/#",)), Tap(("s/+",), sample=0.5)], MemoryRecorder(), Random(1))
    shares = {topic: taps.share(topic) for topic in ("s/1", "s/1/2", "s/secret", "x", "y", "s/secret/1")}
    assert shares == {"s/1": 1.0, "s/1/2": 1.0, "s/secret": 0.5, "x": 1.0, "y": 0.0, "s/secret/1": 0.0}


def test_sampling_keeps_about_its_share_and_marks_stay_with_their_rows() -> None:
    recorder = MemoryRecorder()
    taps = Taps([Tap(("t",), sample=0.25)], recorder, Random(1))
    blob = b"".join(codec.encode(Publish("t", b"%d" % number), 4) for number in range(1000))
    taps.sample(0.25, "c", 4, 1000, blob, range(0, 1000, 2))
    assert 200 < len(recorder.rows) < 300
    assert [int(recorder.payloads[place]) % 2 for place in recorder.resent] == [0] * len(recorder.resent)
    assert len(recorder.resent) == sum(int(payload) % 2 == 0 for payload in recorder.payloads)


def tapped(network: Network, name: str, *topics: str) -> MemoryRecorder:
    recorder = MemoryRecorder()
    network.nodes[name].core.use_taps(Taps([Tap(topics)], recorder, Random(1)))
    return recorder


@pytest.fixture(params=[None, 5.0], ids=["local", "cluster"])
def sites(request: pytest.FixtureRequest) -> Network:
    network = Network()
    network.add("a", "b", cluster_timeout=request.param)
    network.link("a", "b")
    return network


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_publication_is_recorded_once_where_it_was_published_whoever_wants_it(
    sites: Network, qos: int, wanted: bool
) -> None:
    recorders = {name: tapped(sites, name, "s/#") for name in "ab"}
    if wanted:
        Client(sites, "b", "subscriber").subscribe("#", 2)
        sites.settle()
    client = Client(sites, "a", "sensor")
    for topic in ("s/1", "other", "s/2"):
        client.publish(topic, qos)
    sites.settle()
    assert recorders["a"].rows == [("sensor", "s/1"), ("sensor", "s/2")]
    assert recorders["b"].rows == []
    assert sorted(sites.nodes["b"].injected()) == (["other", "s/1", "s/2"] if wanted else [])


def test_retained_publications_and_wills_are_recorded(sites: Network) -> None:
    recorder = tapped(sites, "a", "s/#")
    client = Client(sites, "a", "sensor", will=Will("s/gone", b"!", 1))
    client.pair.from_client(codec.encode(Publish("s/kept", b"r", retain=True), 4))
    client.end()
    assert recorder.rows == [("sensor", "s/kept"), ("sensor", "s/gone")]
    assert recorder.payloads == [b"r", b"!"]


def test_what_the_access_list_denies_is_not_recorded(sites: Network) -> None:
    recorder = tapped(sites, "a", "#")
    sites.nodes["a"].core.admission.replace(parse("topic allowed\n"))
    client = Client(sites, "a", "sensor", will=Will("denied", b"", 0))
    for qos in (0, 1, 2):
        client.publish("allowed", qos)
        client.publish("denied", qos)
    client.end()
    assert recorder.rows == [("sensor", "allowed")] * 3


def test_a_strategy_that_fails_does_not_stop_recording(sites: Network) -> None:
    recorder = tapped(sites, "a", "s")
    core = sites.nodes["a"].core

    def fail(topic: str, came_from: str | None) -> Route:
        raise RuntimeError("bad strategy")

    core.strategy.route = fail  # type: ignore[method-assign]
    Client(sites, "a", "sensor").publish("s")
    assert recorder.rows == [("sensor", "s")]
    assert core.counters["strategy_failures"] == 1


def test_a_topic_that_only_a_tap_wants_makes_no_run(sites: Network) -> None:
    tapped(sites, "a", "s")
    router = sites.nodes["a"].core.router
    assert router.cache(None).lookup(b"s", False) is not None
    assert router.cache("b").lookup(b"s", False) is None  # what others published is theirs to record
    client = Client(sites, "a", "sensor")
    for qos in (0, 1, 2):
        client.publish("s", qos)
    sites.settle()
    lane = sites.nodes["a"].core.neighbour_table["b"].lanes[0]
    assert lane.sent == 0
