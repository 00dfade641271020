from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import RemoteProtocolError
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.messages import (
    MOST_TEXT,
    ClientEntry,
    ClientPage,
    Kind,
    Message,
    MoveRequest,
    OrderResult,
    PlaceAnswer,
    PlaceRequest,
    Report,
    ReportReceipt,
    SiteEntry,
    SitePage,
    SitePing,
    SitePong,
    SiteReading,
    client_key,
    client_size,
    decode,
    encode,
    measured_size,
    site_size,
)

SITE = SiteEntry("a", ("10.0.0.1", 1883), ("2001:db8::1", 7910), 0.25)
MEASURED = SiteReading("a", 1.5, 0.25, 0.125, 0.5, 10, 0.25)
MESSAGES: list[Message] = [
    SitePing(1),
    SitePong(2, 0.25),
    Report("g1", "", 0, 0),
    Report("g1", "c1", 5, 6, (MEASURED, MEASURED._replace(mean=inf, loss=1.0))),
    ReportReceipt("c1", 7),
    SitePage(9, 0, 2, (SITE, SiteEntry("b", ("broker.example", 1883), None, None))),
    ClientPage("g1", 0, 3, (ClientEntry("ü", "a", 0.5), ClientEntry("y", "", 0.0))),
    PlaceRequest(3, "g1", "client"),
    PlaceAnswer(3, ("a", "b")),
    PlaceAnswer(4, ()),
    MoveRequest(2**63, "client", "a", "b"),
    *(OrderResult("g1", 5, outcome, "why") for outcome in MoveOutcome),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_comes_back_as_it_was_and_damaged_it_does_not(message: Message) -> None:
    kind, content = encode(message)
    assert decode(kind, content) == message
    for end in range(len(content)):
        try:
            assert decode(kind, content[:end]) != message
        except RemoteProtocolError:
            continue


def test_a_ping_is_as_long_as_the_traffic_model_says() -> None:
    assert len(encode(SitePing(1))[1]) == 4
    assert len(encode(SitePong(1, 0.5))[1]) == 6


@given(st.integers(0, 255), st.binary(max_size=120))
def test_garbage_is_an_error_or_a_message_and_nothing_else(kind: int, content: bytes) -> None:
    try:
        message = decode(kind, content)
    except RemoteProtocolError:
        return
    assert decode(*encode(message)) == message


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.REPORT, encode(Report("g", "", 0, 0, (MEASURED,)))[1][:-4] + bytes([11, 10, 0, 0])),
        (Kind.SITES, encode(SitePage(1, 2, 2, ()))[1]),
        (Kind.CLIENTS, encode(ClientPage("g", 5, 4, ()))[1]),
        (Kind.MOVED, encode(OrderResult("g", 1, MoveOutcome.DONE, ""))[1][:-2] + bytes([200, 0])),
        (Kind.MOVE, encode(MoveRequest(1, "", "a", "b"))[1]),
        (99, b""),
    ],
)
def test_what_cannot_be_true_is_refused(kind: int, content: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(kind, content)


def test_sizes_that_pages_are_cut_by_are_right() -> None:
    empty = len(encode(Report("g", "", 0, 0))[1])
    assert len(encode(Report("g", "", 0, 0, (MEASURED,)))[1]) - empty == measured_size(MEASURED)
    empty = len(encode(SitePage(0, 0, 1, ()))[1])
    assert len(encode(SitePage(0, 0, 1, (SITE,)))[1]) - empty == site_size(SITE)
    entry = ClientEntry("ü", "a", 0.5)
    empty = len(encode(ClientPage("g", 0, 1, ()))[1])
    assert len(encode(ClientPage("g", 0, 1, (entry,)))[1]) - empty == client_size(entry)


def test_long_ids_of_clients_have_a_shorter_key_of_their_own() -> None:
    assert client_key("ü" * 100) == "ü" * 100
    one, other = client_key("x" * 5000), client_key("x" * 4999)
    assert one != other
    assert len(one.encode()) <= MOST_TEXT
