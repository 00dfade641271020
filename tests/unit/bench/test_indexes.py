"""What each index makes of a few rows of log; whole runs are in tests/bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from brokerweave.bench import indexes
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import MACHINE, RECEIVES, RESOURCES, SENDS, Measurement, RunEvent, Times

MS = 1_000_000
SECOND = 1000 * MS
BEGIN = 100 * SECOND
MEASUREMENT = Measurement(7, "A sf", 10.0, 0.1, Times(1, 2, 1), (BEGIN, BEGIN + 2 * SECOND))
PERIOD = 100 * MS
T, L = 0, 1
GARBAGE = 2**63 - 1
"""The number of a message of somebody else: its payload may say anything."""

Row = tuple[object, ...]


def sends(count: int, client: int = 1, topic: int = 0, kind: int = T, copies: int = 1) -> list[Row]:
    """One each 100 ms, on time, from the window's begin."""
    times = [BEGIN + PERIOD * each for each in range(count)]
    return [(client, n, topic, kind, at, at, 0, copies) for n, at in enumerate(times)]


def receive(
    message: int, ms: float, client: int = 2, publisher: int = 1, topic: int = 0, kind: int = T
) -> Row:
    return (client, publisher, message, topic, kind, BEGIN + int(ms * MS))


def logged(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema)


def computed(
    sent: Sequence[Row] = (),
    received: Sequence[Row] = (),
    used: Sequence[Row] = (),
    measurement: Measurement = MEASUREMENT,
) -> tuple[Indexes, dict[str, pa.Table]]:
    logs = ((SENDS, sent), (RECEIVES, received), (RESOURCES, used))
    return indexes.compute(measurement, *(logged(schema, rows) for schema, rows in logs))


@pytest.mark.parametrize(("late_from", "wanted"), [(20, 1.0), (19, 1.0), (17, 0.85)])
def test_l_clients_keep_up_if_at_most_one_message_more_is_under_way_at_the_end(
    late_from: int, wanted: float
) -> None:
    """Twenty in two seconds; from `late_from` on they come after the window."""
    rows = [receive(n, n * 100 + (1 if n < late_from else 3000), kind=L) for n in range(20)]
    found, _ = computed(sends(20, kind=L), rows)
    assert found.kept_up == pytest.approx(wanted)
    assert found.lost == 0


def test_a_message_that_nobody_sent_is_a_stray_and_no_loss_makes_up_for_it() -> None:
    rows = [receive(0, 1), receive(GARBAGE, 2), receive(0, 3, publisher=9), receive(0, 4, publisher=9)]
    found, _ = computed(sends(2), rows)
    assert (found.strays, found.lost, found.surplus, found.doubled) == (2, 1, 0, 0)
    assert (found.received, found.latency.count) == (4, 1)


def test_what_one_got_too_much_does_not_hide_what_another_missed() -> None:
    rows = [receive(0, 1, client) for client in (2, 3, 4)] + [receive(1, 101)]
    found, _ = computed(sends(2, copies=2), rows)
    assert (found.expected, found.lost, found.surplus) == (4, 1, 1)


def test_only_the_first_delivery_of_a_message_is_timed_and_further_ones_are_doubled() -> None:
    rows = [receive(0, 5), receive(1, 101), receive(0, 150), receive(0, 160), receive(1, 170)]
    found, tables = computed(sends(2), rows)
    assert (found.doubled, found.disordered, found.received) == (3, 0, 5)
    assert tables["latencies"].to_pylist() == [{"latency_us": us, "count": 1} for us in (1000, 5000)]
    assert (found.jitter.count, found.jitter.worst) == (1, 4.0)


def test_disordered_is_what_comes_after_a_higher_one_of_its_own_stream() -> None:
    one = [receive(each, 10 + each) for each in (0, 3, 1, 2, 4)]
    other = [receive(each, 20 + each, client=3) for each in (0, 1)]
    elsewhere = [receive(2, 30, client=3, topic=5)]
    found, _ = computed(sends(5), [*one, *other, *elsewhere])
    assert found.disordered == 2
    after_a_stray, _ = computed(sends(5), [receive(0, 1), receive(GARBAGE, 2), receive(1, 101)])
    assert after_a_stray.disordered == 1


def test_l_clients_alone_are_timed_if_there_are_any() -> None:
    sent = [*sends(2), *sends(2, client=5, topic=1, kind=L)]
    received = [receive(0, 50), receive(0, 3, client=6, publisher=5, topic=1, kind=L)]
    found, _ = computed(sent, received)
    assert (found.latency.count, found.latency.worst) == (1, 3.0)
    assert (found.sent, found.received, found.publishers, found.expected) == (2, 1, 1, 4)


def test_what_was_sent_before_the_window_is_in_the_timeline_and_in_no_index() -> None:
    later = replace(MEASUREMENT, window_ns=(BEGIN + SECOND, BEGIN + 2 * SECOND))
    found, tables = computed(sends(15), [receive(9, 902), receive(9, 950), receive(10, 1001)], (), later)
    assert (found.sent, found.doubled, found.latency.count, found.lost) == (5, 0, 1, 4)
    rows = {row["bin"]: row for row in tables["timeline"].to_pylist()}
    assert rows[-1] == {"bin": -1, "ingress": 1, "egress": 2, "latency_ms": 2.0, "worst_ms": 2.0}
    assert rows[1] == {"bin": 1, "ingress": 1, "egress": 0, "latency_ms": None, "worst_ms": None}


def test_jitter_needs_a_schedule_and_a_message_before() -> None:
    """The period is the schedule's of that publisher on that topic, and halves of a microsecond go up."""
    sent = [*sends(3), *sends(1, client=4, topic=1)]
    rows = [receive(0, 1), receive(1, 101.0005), receive(2, 200), receive(0, 5, publisher=4, topic=1)]
    found, _ = computed(sent, rows)
    assert (found.jitter.count, found.jitter.least, found.jitter.worst) == (2, 0.001, 1.001)


def test_latency_and_jitter_are_told_apart_before_during_and_after_a_kill() -> None:
    """At 500 ms, of 2 s: what comes then is 40 ms late, and what never came in the window is of its end."""
    killed = replace(MEASUREMENT, events=(RunEvent(BEGIN + 500 * MS, "killed"),))
    late = {5: 40, 19: 700}
    found, _ = computed(sends(20), [receive(n, 100 * n + late.get(n, 1)) for n in range(20)], (), killed)
    before, during, after = found.phases
    assert [each.name for each in found.phases] == ["before", "during", "after"]
    assert [each.latency.count for each in found.phases] == [5, 11, 4]
    assert [each.latency.worst for each in found.phases] == [1.0, 40.0, 700.0]
    assert [each.jitter.worst for each in found.phases] == [0.0, 39.0, 699.0]
    assert [each.jitter.count for each in found.phases] == [4, 11, 4]
    assert (before.egress_per_s, after.egress_per_s) == (10, 7.5)
    assert during.egress_per_s == pytest.approx(10, rel=0.02)
    assert computed(sends(20))[0].phases == ()


def test_percentiles_lie_between_the_two_values_next_to_them() -> None:
    found, _ = computed(sends(11), [receive(each, PERIOD // MS * each + each + 1) for each in range(11)])
    latency = found.latency
    assert (latency.p50, latency.p90, latency.worst) == (6.0, 10.0, 11.0)
    assert latency.p99 == pytest.approx(10.9)
    assert latency.deviation == pytest.approx(10**0.5)


def test_the_sp_ratio_weighs_topics_by_their_publishers() -> None:
    crowded = [row for client in (1, 2, 3) for row in sends(4, client, topic=0, copies=10)]
    found, _ = computed([*crowded, *sends(1, 9, topic=1, copies=2), *sends(9, 8, topic=2, kind=L, copies=99)])
    assert found.sp_ratio == (3 * 10 + 2) / 4


def test_only_whole_seconds_of_the_window_can_be_the_least() -> None:
    longer = replace(MEASUREMENT, window_ns=(BEGIN, BEGIN + 2 * SECOND + 700 * MS))
    found, _ = computed(sends(15), [receive(0, 1)], (), longer)
    assert (found.ingress_least, found.egress_least) == (5, 0)
    shorter = replace(MEASUREMENT, window_ns=(BEGIN, BEGIN + 900 * MS))
    assert computed(sends(15), (), (), shorter)[0].ingress_least == 0


def test_a_process_that_was_restarted_is_not_charged_for_the_time_of_its_death() -> None:
    """And what was sampled then, or outside the window, is not its worst."""
    node = [(0.0, 5.0, 1), (1.0, 5.5, 2), (1.5, 0.1, 99), (1.9, 0.5, 3), (3.0, 9.3, 500)]
    rows = [(BEGIN + int(at * SECOND), "site1/node", cpu, rss) for at, cpu, rss in node]
    rows += [(BEGIN + at * SECOND, MACHINE, 2.0 * at, 10) for at in (-1, 0, 1)]
    found, tables = computed((), (), rows)
    machine, ours = found.usage
    assert (ours.role, ours.rss_worst) == ("site1/node", 3)
    assert (ours.cpu, ours.cpu_worst) == pytest.approx(((0.5 + 0.4) / 1.4, 1.0))
    assert found.noise == pytest.approx(machine.cpu - ours.cpu)
    cores = [row["cpu"] for row in tables["resources"].to_pylist() if row["role"] == "site1/node"]
    assert cores == [None, pytest.approx(0.5), None, pytest.approx(1.0), pytest.approx(8.0)]
