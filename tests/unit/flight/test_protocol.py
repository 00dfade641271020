"""What one side says is what the other hears."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.edgelog.layout import Damage, DamagedLog, Position
from brokerweave.edgelog.reader import Skipped, TrimmedRows
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.flight import protocol
from brokerweave.flight.protocol import BatchProgress, LogState, ReadRequest

DAMAGE = Damage("0000000001-00000000000000000001.seg", 10, 90, 1, 5, None, "the checksum of a block is wrong")


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(Position(0, 0), Position(3, 99)),
        ReadRequest(Position(1, 2), Position(1, 5), ("a/+", "ü/#"), ("topic", "payload"), True, "ab" * 16),
    ],
)
def test_a_request_to_read_arrives_as_it_was_sent(request_: ReadRequest) -> None:
    assert ReadRequest.decode(request_.encode()) == request_


@pytest.mark.parametrize(
    ("ticket", "words"),
    [
        (b"\xff", "should be JSON"),
        (b"[1]", "a JSON object"),
        (b"{}", "after"),
        (b'{"after":[0,0],"up_to":[1,true]}', "[epoch, sequence]"),
        (b'{"after":[0,0],"up_to":[1]}', "[epoch, sequence]"),
        (b'{"after":[0,0],"up_to":[1,1],"topics":"a"}', "a list of texts"),
        (b'{"after":[0,0],"up_to":[1,1],"topics":["a#"]}', "'a#'"),
        (b'{"after":[0,0],"up_to":[1,1],"topics":[' + b'"a",' * 1000 + b'"a"]}', "too many"),
    ],
)
def test_a_ticket_that_is_none_is_the_callers_fault_and_one_line_says_why(ticket: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadRequest.decode(ticket)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_state_and_progress_arrive_as_they_were_sent() -> None:
    state = LogState(
        "ab" * 16,
        "a",
        Position(1, 3),
        Position(2, 9),
        1_700_000_000_000_000,
        (Position(1, 3), Position(2, 7)),
    )
    assert LogState.read(protocol.decode(protocol.encode(state.plain()))) == state
    near = replace(state, folder="/var/log", mark="a machine")
    assert LogState.read(protocol.decode(protocol.encode(near.plain()))) == near
    older = {name: value for name, value in near.plain().items() if name not in {"folder", "mark"}}
    assert LogState.read(protocol.decode(protocol.encode(older))) == state
    progress = BatchProgress(Position(2, 9), Skipped(3, 4, Position(2, 7)))
    assert BatchProgress.decode(progress.encode()) == progress


@pytest.mark.parametrize(
    "error",
    [
        TrimmedRows(Position(1, 2), Position(1, 9)),
        DamagedLog(DAMAGE),
        ConfigError("a reader's name has 1 to 64 letters"),
        Unavailable("the disk does not answer"),
        BrokerweaveError("log.json is damaged"),
    ],
)
def test_an_error_keeps_its_kind_its_text_and_what_it_carries(error: BrokerweaveError) -> None:
    arrived = protocol.decode_error(protocol.encode_error(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    if isinstance(error, TrimmedRows) and isinstance(arrived, TrimmedRows):
        assert (arrived.after, arrived.first) == (error.after, error.first)
    if isinstance(error, DamagedLog) and isinstance(arrived, DamagedLog):
        assert arrived.damage == error.damage


@pytest.mark.parametrize(
    "data", [b"", b"x", b"{}", b'{"error":"TrimmedRows"}', b'{"error":"DamagedLog","damage":{}}']
)
def test_bytes_that_are_no_error_of_ours_are_none(data: bytes) -> None:
    assert protocol.decode_error(data) is None
