"""Logs: frames become rows, rows become files."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from brokerweave.bench import indexes
from brokerweave.bench.folder import HEADER, LATE_NS, RECEIVES, RESOURCES, SENDS, Measurement, Times, read_log
from brokerweave.bench.load import wire
from brokerweave.bench.load.logs import ReceiveLog, SendLog, write_sends
from brokerweave.bench.load.plan import WorkerPlan, worker_plans
from brokerweave.bench.load.tally import Tally
from brokerweave.bench.scenario import ClientGroup, Place, Scenario
from brokerweave.errors import RemoteProtocolError

BEGAN = 10**9
HEAD = wire.publish_head("t1", 0, 32)
LENGTH = (len(HEAD) + 32, len(HEAD))


def plan(folder: Path) -> WorkerPlan:
    scenario = Scenario(
        "x", (Place("a"),), (ClientGroup("a", "t1", 2, 3),), Times(0, 1, 0), interval=0.1, workers=1
    )
    return worker_plans(scenario, {"a": ("127.0.0.1", 1)}, str(folder), "")[0]


def frame(publisher: int, message: int, sent: int) -> bytes:
    return HEAD + HEADER.pack(publisher, message, sent) + wire.padding(32)


def test_deliveries_of_one_chunk_keep_their_order_in_the_log(tmp_path: Path) -> None:
    made = plan(tmp_path)
    log = ReceiveLog(made, [LENGTH] * 3, Tally(made, BEGAN, 2 * BEGAN), BEGAN)
    log.add(BEGAN + 7, 1, frame(0, 5, BEGAN) + frame(0, 6, BEGAN + 1))
    log.add(BEGAN + 99, 2, frame(1, 0, BEGAN))
    log.close()
    rows = read_log([tmp_path / "receives-0.arrow"], RECEIVES).to_pylist()
    assert [(row["client"], row["publisher"], row["message"]) for row in rows] == [
        (3, 0, 5),
        (3, 0, 6),
        (4, 1, 0),
    ]
    assert [row["received_ns"] - BEGAN for row in rows] == [7, 8, 99]


def test_what_another_measurement_sent_is_left_out(tmp_path: Path) -> None:
    made = plan(tmp_path)
    tally = Tally(made, BEGAN, 2 * BEGAN)
    log = ReceiveLog(made, [LENGTH] * 3, tally, BEGAN)
    log.add(BEGAN + 7, 0, frame(40, 10**6, BEGAN - 1) + frame(0, 0, BEGAN))
    log.close()
    assert read_log([tmp_path / "receives-0.arrow"], RECEIVES).num_rows == 1
    assert tally.received == 1


def test_what_claims_to_be_sent_after_it_came_is_somebody_elses_and_left_out(tmp_path: Path) -> None:
    made = plan(tmp_path)
    tally = Tally(made, BEGAN, 2 * BEGAN)
    log = ReceiveLog(made, [LENGTH] * 3, tally, BEGAN)
    for sent in (BEGAN + 8, 2**63 - 1, 2**64 - 1):
        log.add(BEGAN + 7, 0, frame(2**32 - 1, 2**64 - 1, sent))
    log.close()
    assert tally.received == 0


def test_a_frame_of_another_length_is_an_error(tmp_path: Path) -> None:
    made = plan(tmp_path)
    log = ReceiveLog(made, [LENGTH] * 3, Tally(made, BEGAN, 2 * BEGAN), BEGAN)
    log.add(BEGAN, 0, frame(0, 0, BEGAN) + b"\x30\x00")
    with pytest.raises(RemoteProtocolError):
        log.flush()


def test_sends_are_logged_with_when_they_were_due_and_counted_by_when_they_went(tmp_path: Path) -> None:
    made = plan(tmp_path)
    publishers = sorted((c for c in made.clients if c.publishes), key=lambda c: c.phase)
    late = BEGAN + 100_000_000 + LATE_NS + 1
    log = SendLog(publishers, 0.1, BEGAN, array("q", [BEGAN, BEGAN + 50_000_000, late]), {1: 3 * BEGAN})
    counted = write_sends(made, [log], BEGAN + 1, 2 * BEGAN)
    assert counted == {"sent": 2, "acknowledged": 1, "expected": 6, "expected_of_l": 0, "late_sends": 1}
    rows = read_log([tmp_path / "sends-0.arrow"], SENDS).to_pylist()
    assert [(row["client"], row["message"], row["due_ns"] - BEGAN) for row in rows] == [
        (0, 0, 0),
        (1, 0, 50_000_000),
        (0, 1, 100_000_000),
    ]
    assert [row["acked_ns"] for row in rows] == [0, 3 * BEGAN, 0]
    assert {row["copies"] for row in rows} == {3}


@pytest.mark.parametrize("payload", [20, 32, 200, 20_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_head_and_its_payload_are_one_frame(payload: int, qos: int) -> None:
    from brokerweave.mqtt import frames

    head = wire.publish_head("topic1", qos, payload)
    whole = head + (b"\x00\x01" if qos else b"") + bytes(payload)
    assert frames.split(whole) == [whole]
    assert len(whole) - frames.publish_head(whole, 4).payload_start == payload


def test_what_is_counted_meanwhile_is_what_the_logs_say_whatever_went_wrong(tmp_path: Path) -> None:
    """Messages from before, in and after the window, of which some are lost, doubled, overtaken or late."""
    chance, made = random.Random(11), replace(plan(tmp_path), warm_up=0.3, cool_down=0.3)
    end, millisecond = 2 * BEGAN, 10**6
    sending = SendLog([client for client in made.clients if client.publishes], 0.1, BEGAN - 3 * 10**8)
    sending.sent = array("q", sending_times := [sending.began + 50 * millisecond * n for n in range(32)])
    due: list[tuple[int, int, bytes]] = []
    for turn, sent in enumerate(sending_times):
        for subscriber in range(3):
            for _ in range(chance.choice((0, 1, 1, 1, 1, 2))):
                came = sent + millisecond * chance.choice((1, 2, 3, 170))
                due.append((came, subscriber, frame(turn % 2, turn // 2, sent)))
    tally = Tally(made, BEGAN, end)
    log = ReceiveLog(made, [LENGTH] * 3, tally, sending.began)
    for came, subscriber, packet in sorted(due):
        log.add(came, subscriber, packet)
        if chance.random() < 0.1:
            log.flush()
    log.close()
    counted = write_sends(made, [sending], BEGAN, end) | tally.result()
    sends, receives = (
        read_log([tmp_path / f"{name}-0.arrow"], schema)
        for name, schema in (("sends", SENDS), ("receives", RECEIVES))
    )
    measurement = Measurement(1, "x", 20.0, 0.1, Times(0, 1, 0), (BEGAN, end))
    found, _ = indexes.compute(measurement, sends, receives, RESOURCES.empty_table())
    for name in ("sent", "expected", "received", "doubled", "disordered", "late_sends"):
        assert getattr(found, name) == counted[name], name
    assert found.lost == counted["expected"] - counted["taken"]
    assert min(found.lost, found.doubled, found.disordered) > 0
    assert found.latency.mean == pytest.approx(tally.latencies().mean() / 1000)
