"""Columns are what the rows are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from brokerweave.edgelog import arrow  # noqa: E402
from brokerweave.edgelog.layout import START, Position  # noqa: E402
from brokerweave.edgelog.reader import LogReader  # noqa: E402
from brokerweave.edgelog.writer import LogWriter  # noqa: E402
from brokerweave.errors import ConfigError  # noqa: E402
from brokerweave.mqtt import codec  # noqa: E402
from brokerweave.mqtt.packets import Publish  # noqa: E402
from brokerweave.mqtt.properties import Property  # noqa: E402
from brokerweave.mqtt.scanner import RouteCache  # noqa: E402
from tests.unit.edgelog.logs import SMALL, read  # noqa: E402

publications = st.builds(
    lambda topic, payload, qos, retain, user: Publish(
        topic, payload, qos, retain, False, 9 if qos else 0, ((Property.USER_PROPERTY, user),) if user else ()
    ),
    st.sampled_from(["a", "b/c", "ü"]),
    st.binary(max_size=20),
    st.integers(0, 2),
    st.booleans(),
    st.none() | st.just(("k", "v")),
)
runs = st.tuples(
    st.sampled_from(["c1", "", "é"]),
    st.lists(publications, min_size=1, max_size=4),
    st.sets(st.integers(0, 0)),
)


@given(blocks=st.lists(st.lists(runs, min_size=1, max_size=3), min_size=1, max_size=3), cut=st.integers(0, 6))
def test_a_batch_holds_what_the_rows_hold(
    blocks: list[list[tuple[str, list[Publish], set[int]]]], cut: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = LogWriter(folder, "a", SMALL)
        for block in blocks:
            for time, (client, packets, resent) in enumerate(block):
                blob = b"".join(codec.encode(packet, 5) for packet in packets)
                writer.append(time, client.encode(), 5, len(packets), blob, sorted(resent))
            writer.flush()
        writer.close()
        after = Position(1, cut) if cut else START
        reader = LogReader(folder)
        batch = arrow.batch(reader.identity(), reader.blocks(after), after)
        batch.validate(full=True)
        expected = [
            {
                "log_id": writer.identity.log_id,
                "epoch": 1,
                "sequence": row.sequence,
                "site": "a",
                "client": row.client,
                "topic": row.topic,
                "payload": row.payload,
                "qos": row.qos,
                "retain": row.retain,
                "dup": row.dup,
                "packet_id": row.packet_id,
                "properties": [{"key": key, "value": value} for key, value in row.properties],
                "schema_version": 1,
            }
            for row in read(folder, after)
        ]
        got = batch.drop_columns(["received"]).to_pylist()
        assert got == expected
        times = batch.column("received").cast(pa.int64()).to_pylist()
        assert times == [row.received for row in read(folder, after)]


def test_a_range_and_a_topic_filter_are_kept_to(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL)
    for number in range(6):
        packet = Publish("odd" if number % 2 else "even", b"%d" % number)
        writer.append(1, b"c", 4, 1, codec.encode(packet, 4), [0] if number == 3 else [])
    writer.close()
    reader = LogReader(tmp_path)
    odd = RouteCache(lambda topic, retain: True if topic == b"odd" else None)
    after, up_to = Position(1, 1), Position(1, 5)
    batch = arrow.batch(reader.identity(), reader.blocks(after, up_to), after, up_to, odd)
    assert batch.column("sequence").to_pylist() == [2, 4]
    assert batch.column("dup").to_pylist() == [False, True]
    assert arrow.batch(reader.identity(), []).num_rows == 0


def test_only_the_columns_asked_for_are_made_in_their_order(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL)
    writer.append(1, b"c", 4, 1, codec.encode(Publish("t", b"x"), 4))
    writer.close()
    reader = LogReader(tmp_path)
    everything = arrow.batch(reader.identity(), reader.blocks())
    for name in arrow.SCHEMA.names:
        alone = arrow.batch(reader.identity(), reader.blocks(), columns=[name])
        assert alone.equals(everything.select([name]))
    swapped = arrow.batch(reader.identity(), reader.blocks(), columns=["payload", "epoch"])
    assert swapped.to_pydict() == {"payload": [b"x"], "epoch": [1]}
    for wrong in (["colour"], ["topic", "topic"]):
        with pytest.raises(ConfigError):
            arrow.project(wrong)
