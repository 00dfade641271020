"""What `benchmarks.churn` says of a node's memory: a leak, a step of the heap, or back."""

from __future__ import annotations

from benchmarks.churn import ROUNDS, Growth

MIB = 1 << 20


def growth(*rounds: float, clients: float = 0.0) -> Growth:
    """Of a node with 50 MiB before; what it has more after each round of 100,000 filters, in MiB."""
    sizes = [round((50 + more) * MIB) for more in (*rounds, max(clients, rounds[-1]))]
    return Growth("near", 48 * MIB, 50 * MIB, tuple(sizes[:-1]), sizes[-1], 100_000)


def test_one_step_of_the_heap_is_no_leak() -> None:
    assert growth(*[0.0] * 4, *[2.0] * (ROUNDS - 4)).verdict == "back"


def test_two_bytes_kept_of_each_filter_is_a_leak_although_the_ratio_is_small() -> None:
    leak = growth(*(0.2 * number for number in range(1, ROUNDS + 1)))
    assert leak.ratio < 1.05
    assert leak.verdict == "LEAKS"


def test_a_step_that_is_too_large_is_not_back() -> None:
    assert growth(*[3.0] * ROUNDS).verdict == "GREW"


def test_connections_count_as_well() -> None:
    assert growth(*[0.0] * ROUNDS, clients=3.0).verdict == "GREW"
