"""Both searches against servers whose limit is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from brokerweave.bench.search import Limit, Search, SearchOutcome
from brokerweave.bench.search.adaptive import adaptive
from brokerweave.bench.search.exact import exact

PUBLISHERS, SP_RATIO = 50, 10.0

Server = Callable[[float], float]
"""Ingress a second -> what of it is served a second."""


def outcome(interval: float, server: Server) -> SearchOutcome:
    ingress = PUBLISHERS / interval
    return SearchOutcome(interval, ingress, server(ingress) * SP_RATIO, SP_RATIO)


def found(search: Search, server: Server) -> tuple[Limit, list[float]]:
    asked = [next(search)]
    for _ in range(200):
        try:
            asked.append(search.send(outcome(asked[-1], server)))
        except StopIteration as end:
            return end.value, asked
    raise AssertionError("the search does not end")


def plain(limit: float) -> Server:
    return lambda rate: min(rate, limit)


def noisy(limit: float, seed: int) -> Server:
    chance = random.Random(seed)
    return lambda rate: min(rate, limit * chance.gauss(1, 0.005))


def choking(limit: float) -> Server:
    """The more it is asked for too much, the less it serves."""
    return lambda rate: rate if rate <= limit else limit * (limit / rate) ** 0.7


def hurried(limit: float) -> Server:
    """Serves somewhat more under pressure, since it works in larger batches then."""
    return lambda rate: rate if rate <= limit else min(rate * 0.985, limit * 1.3)


LIMITS = [317.0 * 1.27**power for power in range(20)]


@pytest.mark.parametrize("search", [exact, adaptive])
@pytest.mark.parametrize("kind", [plain, choking])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_known_limit_is_found_within_5_per_cent(
    search: Callable[[], Search], kind: Callable[[float], Server], limit: float
) -> None:
    result, _ = found(search(), kind(limit))
    assert result.best is not None
    assert result.best.ingress == pytest.approx(limit, rel=0.05)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("search", [exact, adaptive])
def test_it_is_found_although_the_server_wavers(search: Callable[[], Search], seed: int) -> None:
    limit = LIMITS[seed]
    result, _ = found(search(), noisy(limit, seed))
    assert result.best is not None
    assert result.best.ingress == pytest.approx(limit, rel=0.05)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_server_that_serves_more_under_pressure_does_not_mislead(limit: float) -> None:
    result, _ = found(adaptive(), hurried(limit))
    assert result.best is not None
    assert result.best.ingress == pytest.approx(limit, rel=0.05)


@pytest.mark.parametrize("limit", LIMITS)
def test_the_adaptive_search_asks_at_most_half_as_often_and_agrees(limit: float) -> None:
    paper, _ = found(exact(), plain(limit))
    quick, _ = found(adaptive(), plain(limit))
    assert quick.measurements <= paper.measurements / 2
    assert quick.best is not None
    assert paper.best is not None
    assert quick.best.ingress == pytest.approx(paper.best.ingress, rel=0.05)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("off", [0.1, 0.85, 1.08, 2.0])
def test_where_a_limit_is_expected_no_server_is_asked_for_far_more(limit: float, off: float) -> None:
    result, asked = found(adaptive(PUBLISHERS / (limit * off)), plain(limit))
    assert result.best is not None
    assert result.best.ingress == pytest.approx(limit, rel=0.05)
    assert off < 0.5 or max(PUBLISHERS / interval for interval in asked) <= limit * max(off, 1.4)
    assert result.measurements <= 9


def test_the_exact_search_asks_what_the_paper_asks() -> None:
    limit = PUBLISHERS / 0.0029
    result, asked = found(exact(0.001), plain(limit))
    assert asked[:3] == [0.001, 0.002, 0.004]
    assert asked[3:] == pytest.approx([0.002 + 0.0001 * part for part in range(1, 20)])
    assert result.measurements == len(asked) == 22
    assert result.best is not None
    assert result.best.interval == pytest.approx(0.0029)


def test_the_exact_search_halves_where_the_first_interval_holds_already() -> None:
    _, asked = found(exact(0.004), plain(PUBLISHERS / 0.0015))
    assert asked[:3] == [0.004, 0.002, 0.001]
    assert len(asked) == 22


@pytest.mark.parametrize("search", [exact, adaptive])
def test_a_server_that_serves_nothing_has_no_limit_and_the_search_ends(search: Callable[[], Search]) -> None:
    result, asked = found(search(), lambda rate: 0.0)
    assert result.best is None
    assert len(asked) <= 30


def test_a_disturbed_measurement_near_the_limit_is_asked_again() -> None:
    disturbed: set[float] = set()

    def once(rate: float) -> float:
        if rate not in disturbed and 950 < rate < 1000:
            disturbed.add(rate)
            return rate * 0.98
        return min(rate, 1000.0)

    result, _ = found(adaptive(), once)
    assert disturbed
    assert result.best is not None
    assert result.best.ingress == pytest.approx(1000, rel=0.04)


def test_what_was_expected_decides() -> None:
    assert SearchOutcome(0.1, 100, 990, 10).under_limit
    assert not SearchOutcome(0.1, 100, 989, 10).under_limit
    assert not SearchOutcome(0.1, 0, 0, 10).under_limit
    assert not SearchOutcome(0.1, 100, 1000, 10, lost=1).under_limit
    assert not SearchOutcome(0.1, 100, 1000, 10, kept_up=0.95).under_limit


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("search", [exact, adaptive])
def test_what_falls_behind_between_sites_is_the_limit_even_if_every_site_serves_its_own(
    search: Callable[[], Search], limit: float
) -> None:
    running = search()
    interval, best = next(running), None
    for _ in range(60):
        rate = PUBLISHERS / interval
        try:
            interval = running.send(
                SearchOutcome(interval, rate, rate * SP_RATIO, SP_RATIO, kept_up=min(1.0, limit / rate))
            )
        except StopIteration as end:
            best = end.value.best
            break
    assert best is not None
    assert best.ingress == pytest.approx(limit, rel=0.05)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("search", [exact, adaptive])
def test_a_server_that_throws_away_what_it_cannot_serve_does_not_mislead(
    search: Callable[[], Search], limit: float
) -> None:
    """What counts is delivered at any rate, since what is lost was queued before the window."""
    running = search()
    interval, best = next(running), None
    for _ in range(60):
        rate = PUBLISHERS / interval
        lost = 0 if rate <= limit else int(rate - limit) + 1
        try:
            interval = running.send(SearchOutcome(interval, rate, rate * SP_RATIO, SP_RATIO, lost))
        except StopIteration as end:
            best = end.value.best
            break
    assert best is not None
    assert best.ingress == pytest.approx(limit, rel=0.05)
