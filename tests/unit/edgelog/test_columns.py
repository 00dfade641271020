"""The loop over runs and frames, compiled and not: every test runs over both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.edgelog.layout import run_head
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from tests.unit.variants import BOTH

SIZES = {"q": 8, "i": 4, "B": 1}
ALL = frozenset({"topic", "payload", "client", "properties"})
LAST = 2**62


pytestmark = pytest.mark.parametrize("module", BOTH)


class Filled:
    """`Columns` with its columns of numbers as lists."""

    def __init__(self, module: SimpleNamespace, rows: int, size: int, wants: frozenset[str] = ALL) -> None:
        self._numbers: dict[str, memoryview] = {}
        self.columns: Any = module.Columns(rows, size, self._room, wants)

    def _room(self, name: str, kind: str, count: int) -> memoryview:
        room = memoryview(bytearray(b"\xaa" * count * SIZES[kind]))
        made: memoryview = room.cast(kind)  # type: ignore[call-overload]
        self._numbers[name] = made
        return made

    def __getitem__(self, name: str) -> list[int]:
        return self._numbers[name].tolist()[: self.columns.rows]

    def texts(self, name: str) -> list[bytes]:
        ends = self._numbers[f"{name}_ends"].tolist()
        data = bytes(getattr(self.columns, f"{name}s"))
        return [data[ends[i] : ends[i + 1]] for i in range(self.columns.rows)]


def run(
    *packets: Publish, time: int = 5, client: bytes = b"c", version: int = 5, resent: tuple[int, ...] = ()
) -> bytes:
    blob = b"".join(codec.encode(packet, version) for packet in packets)
    return run_head(time, client, version, len(packets), len(blob), resent) + blob


USER = ((Property.USER_PROPERTY, ("k", "v")),)
BODY = run(
    Publish("a", b"0", 0), Publish("b/c", b"1" * 300, 1, True, packet_id=258), time=1_700_000_000_000_001
) + run(
    Publish("a", b"", 2, packet_id=3, properties=USER),
    Publish("ü", b"3"),
    Publish("a", b"4", properties=USER),
    client=b"",
    resent=(0, 2),
)


def test_every_field_of_every_row_is_where_it_belongs(module: SimpleNamespace) -> None:
    filled = Filled(module, 5, len(BODY))
    filled.columns.add(BODY, 7, 100, 0, LAST, None)
    assert filled.columns.rows == 5
    assert filled["epochs"] == [7] * 5
    assert filled["sequences"] == [100, 101, 102, 103, 104]
    assert filled["received"] == [1_700_000_000_000_001] * 2 + [5] * 3
    assert filled["qos"] == [0, 1, 2, 0, 0]
    assert filled["retain"] == [0, 1, 0, 0, 0]
    assert filled["dup"] == [0, 0, 1, 0, 1]
    assert filled["packet_ids"] == [0, 258, 3, 0, 0]
    assert filled.texts("topic") == [b"a", b"b/c", b"a", "ü".encode(), b"a"]
    assert filled.texts("payload") == [b"0", b"1" * 300, b"", b"3", b"4"]
    assert [filled.columns.clients[at] for at in filled["client_at"]] == [b"c", b"c", b"", b"", b""]
    sets = filled.columns.property_sets
    assert [sets[at] for at in filled["properties_at"]] == [b"", b"", sets[1], b"", sets[1]]


def test_a_range_and_a_filter_leave_out_rows_and_marks_stay_with_theirs(module: SimpleNamespace) -> None:
    only_a = module.RouteCache(lambda topic, retain: True if topic == b"a" else None)
    filled = Filled(module, 10, 2 * len(BODY))
    filled.columns.add(BODY, 1, 100, 101, 103, only_a)
    filled.columns.add(BODY, 1, 200, 0, LAST, only_a)
    assert filled["sequences"] == [102, 200, 202, 204]
    assert filled["dup"] == [1, 0, 1, 1]
    assert filled.texts("payload") == [b"", b"0", b"", b"4"]


def test_columns_that_nobody_wants_take_no_room(module: SimpleNamespace) -> None:
    filled = Filled(module, 5, len(BODY), frozenset({"payload"}))
    filled.columns.add(BODY, 1, 1, 0, LAST, None)
    assert filled.columns.topics == b""
    assert filled.columns.clients == []
    assert filled.columns.property_sets == [b""]
    assert filled.texts("payload")[0] == b"0"


def test_what_does_not_fit_is_refused(module: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="more rows"):
        Filled(module, 4, len(BODY)).columns.add(BODY, 1, 1, 0, LAST, None)
    with pytest.raises(ValueError, match="room"):
        Filled(module, 5, len(BODY) - 1).columns.add(BODY, 1, 1, 0, LAST, None)
    with pytest.raises(ValueError, match="so many bytes"):
        Filled(module, 5, 2**31)


def test_the_room_that_names_take_is_known_before(module: SimpleNamespace) -> None:
    body = run(*[Publish("a")] * 3, client=b"x" * 1000) + run(Publish("a"), client=b"yy", resent=(0,)) + BODY
    assert module.client_bytes(body) == 3000 + 2 + 2
    assert module.client_bytes(b"") == 0


@given(cut=st.integers(1, len(BODY) - 1))
def test_a_body_that_is_cut_short_is_an_error_or_ends_between_runs(module: SimpleNamespace, cut: int) -> None:
    filled = Filled(module, 5, len(BODY))
    try:
        filled.columns.add(BODY[:cut], 1, 1, 0, LAST, None)
    except RemoteProtocolError:
        return
    assert filled.columns.rows == 2


@given(at=st.integers(0, len(BODY) - 1), value=st.integers(0, 255))
def test_bytes_that_were_changed_never_lead_outside(module: SimpleNamespace, at: int, value: int) -> None:
    changed = BODY[:at] + bytes((value,)) + BODY[at + 1 :]
    filled = Filled(module, 5, len(BODY))
    try:
        filled.columns.add(changed, 1, 1, 0, LAST, None)
    except (RemoteProtocolError, ValueError):
        return
    assert filled.columns.rows <= 5
    assert sum(map(len, filled.texts("topic") + filled.texts("payload"))) <= len(BODY)
