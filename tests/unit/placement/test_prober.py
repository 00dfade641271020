"""One gateway's prober in virtual time: near sites often, far ones seldom, never too much."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from math import inf
from random import Random

import pytest

from brokerweave.placement.prober import Prober, ProbeSettings
from brokerweave.placement.quality import Sample
from brokerweave.sim.placement import PING_BYTES


class Pinged:
    def __init__(self, trips: dict[str, float], settings: ProbeSettings | None = None) -> None:
        self.trips = trips
        self.now = 0.0
        self.pings: list[tuple[float, str]] = []
        self.samples: list[tuple[str, Sample]] = []
        self.prober = Prober(settings or ProbeSettings(), Random(1), self)
        self._answers: list[tuple[float, int]] = []

    def ping(self, site: str, seq: int) -> bool:
        self.pings.append((self.now, site))
        if self.trips[site] < inf:
            heappush(self._answers, (self.now + self.trips[site], seq))
        return True

    def measured(self, site: str, sample: Sample) -> None:
        self.samples.append((site, sample))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            answer = self._answers[0][0] if self._answers else inf
            due = min(answer, self.prober.next_due())
            if due > end:
                break
            self.now = due
            if answer <= due:
                self.prober.answered(heappop(self._answers)[1], due)
            else:
                self.prober.tick(due)
        self.now = end

    def counted(self, after: float = 0.0) -> Counter[str]:
        return Counter(site for at, site in self.pings if at >= after)


def many(sites: int) -> dict[str, float]:
    return {f"s{number:03}": 0.005 + 0.002 * number for number in range(sites)}


def known(trips: dict[str, float]) -> dict[str, float | None]:
    return dict.fromkeys(trips)


@pytest.mark.parametrize("sites", [1, 5, 20, 100, 400])
def test_a_gateway_sends_and_gets_at_most_two_kilobytes_a_second(sites: int) -> None:
    pinged = Pinged(many(sites))
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.run(600)
    steady = [at for at, _ in pinged.pings if at >= 120]
    assert len(steady) / 480 * PING_BYTES <= 2000


def test_the_nearest_sites_are_measured_every_fifteen_seconds_and_far_ones_seldom() -> None:
    pinged = Pinged(many(50))
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.run(900)
    counts = pinged.counted(after=300)
    near = [counts[f"s{number:03}"] for number in range(5)]
    far = [counts[f"s{number:03}"] for number in range(10, 50)]
    assert all(350 <= count <= 450 for count in near), "600 s / 15 s x 10 pings"
    assert all(1 <= count <= 11 for count in far)
    assert sum(far[-10:]) < sum(far[:10])


def test_sites_in_use_are_measured_as_near_ones() -> None:
    pinged = Pinged(many(50))
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.prober.set_used(["s049", "gone"], 0.0)
    pinged.run(300)
    assert "s049" in pinged.prober.near
    assert pinged.counted()["s049"] > 100


def test_a_far_site_that_comes_near_is_found() -> None:
    pinged = Pinged(many(50))
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.run(200)
    assert "s040" not in pinged.prober.near
    pinged.trips["s040"] = 0.001
    pinged.run(300)
    assert "s040" in pinged.prober.near
    assert pinged.prober.estimates()["s040"] == pytest.approx(0.001)


def test_guesses_say_whom_to_measure_first() -> None:
    pinged = Pinged(many(400))
    pinged.prober.set_sites({**pinged.trips}, 0.0)
    assert pinged.prober.near == {f"s{number:03}" for number in range(5)}
    pinged.run(3)
    assert pinged.counted()["s000"] == 10


def test_a_site_that_does_not_answer_is_lost_and_still_asked_now_and_then() -> None:
    pinged = Pinged({"a": inf, "b": 0.010})
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.run(60)
    assert {sample.loss for site, sample in pinged.samples if site == "a"} == {1.0}
    assert pinged.prober.estimates().keys() == {"b"}
    pinged.trips["a"] = 0.001
    pinged.run(60)
    assert pinged.prober.estimates().keys() == {"a", "b"}


def test_a_site_that_is_gone_is_not_measured_any_more() -> None:
    pinged = Pinged({"a": 0.001, "b": 0.010})
    pinged.prober.set_sites(known(pinged.trips), 0.0)
    pinged.run(31)
    pinged.prober.set_sites({"b": None}, pinged.now)
    pinged.run(2.5)  # a measurement under way ends
    then = pinged.now
    pinged.run(60)
    assert pinged.counted(after=then).keys() == {"b"}
    assert pinged.samples[-1][0] == "b"


def test_a_measurement_that_is_asked_for_is_made_beside_the_others() -> None:
    pinged, found = Pinged({"a": 0.020}), list[Sample]()
    pinged.prober.measure("a", 10, 0.0, found.append)
    pinged.run(10)
    assert [round(each.mean, 6) for each in found] == [0.020]
    assert len(pinged.pings) == 10
    assert pinged.prober.next_due() == inf
