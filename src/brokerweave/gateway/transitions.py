"""The states of a client's way to its site, and what leads from one to the next, as a table.

Owns every transition of a move (make before break), of a search for a site, and of their failures.
Invariants: while a client has a site that works it keeps it until another one has accepted it; a client
without one is looked after until a site accepts it or the search is given up; each order has one result. Must
not know: packets, sockets, clocks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from brokerweave.errors import LocalProtocolError


class ClientWay(enum.Enum):
    """Where a client stands. What it sends waits in all states but the first two."""

    AT_REST = "at rest"
    """It has a site, and everything passes."""
    DIALING = "dialing"
    """The same, and a connection to another site is being opened."""
    GREETING = "greeting"
    """The other site was given its CONNECT."""
    DRAINING = "draining"
    """The other site has accepted it, and the old one lets what is in flight be answered."""
    SEEKING = "seeking"
    """It has no site, and a connection to one is being opened."""
    ASKING = "asking"
    """It has no site, and one was given its CONNECT."""
    ENDED = "ended"


class Event(enum.Enum):
    ORDERED = "ordered"
    OPENED = "opened"
    UNREACHABLE = "unreachable"
    ACCEPTED = "accepted"
    """The other site has accepted the client, and the old one will drain and end."""
    TAKEN_OVER = "taken over"
    """The other site has accepted the client, and knows nothing of the old one."""
    REFUSED = "refused"
    OTHER_LOST = "other lost"
    OWN_LOST = "own lost"
    """The connection to the client's site ended."""
    OVERDUE = "overdue"
    HOPELESS = "hopeless"
    """No site is left to be asked, and the time for the search is over."""
    CLIENT_GONE = "client gone"


class MoveStep(enum.Enum):
    """What is done, in the order of a transition."""

    DIAL = "dial the site of the order"
    SEEK = "dial the next site that may answer"
    GREET = "send CONNECT there"
    REPLAY = "subscribe there to what the client wants"
    LEAVE_OLD = "end the session at the old site"
    FORGET_OLD = "what was in flight at the old site has no answer to come"
    DROP_OTHER = "close the connection to the other site"
    SWITCH = "the other site is the client's, what waited goes there"
    RESUME = "what waited goes to the old site"
    DONE = "the order is done"
    LATE = "the order is done, though the old site did not end in time"
    REFUSE = "the order is refused"
    FAIL = "the order has failed"
    END = "end the client's connection and all others"


_S, _E, _W = MoveStep, Event, ClientWay
_LOOK_ELSEWHERE = (_W.SEEKING, (_S.DROP_OTHER, _S.SEEK))
TABLE: Mapping[tuple[ClientWay, Event], tuple[ClientWay, tuple[MoveStep, ...]]] = MappingProxyType(
    {
        (_W.AT_REST, _E.ORDERED): (_W.DIALING, (_S.DIAL,)),
        (_W.AT_REST, _E.OWN_LOST): (_W.SEEKING, (_S.FORGET_OLD, _S.SEEK)),
        (_W.DIALING, _E.OPENED): (_W.GREETING, (_S.GREET,)),
        (_W.DIALING, _E.UNREACHABLE): (_W.AT_REST, (_S.FAIL,)),
        (_W.DIALING, _E.OVERDUE): (_W.AT_REST, (_S.DROP_OTHER, _S.FAIL)),
        (_W.DIALING, _E.OTHER_LOST): (_W.AT_REST, (_S.FAIL,)),
        (_W.DIALING, _E.OWN_LOST): (_W.SEEKING, (_S.FORGET_OLD,)),
        (_W.GREETING, _E.ACCEPTED): (_W.DRAINING, (_S.REPLAY,)),
        (_W.GREETING, _E.TAKEN_OVER): (
            _W.AT_REST,
            (_S.LEAVE_OLD, _S.FORGET_OLD, _S.REPLAY, _S.SWITCH, _S.DONE),
        ),
        (_W.GREETING, _E.REFUSED): (_W.AT_REST, (_S.DROP_OTHER, _S.RESUME, _S.REFUSE)),
        (_W.GREETING, _E.OTHER_LOST): (_W.AT_REST, (_S.RESUME, _S.FAIL)),
        (_W.GREETING, _E.OVERDUE): (_W.AT_REST, (_S.DROP_OTHER, _S.RESUME, _S.FAIL)),
        (_W.GREETING, _E.OWN_LOST): (_W.ASKING, (_S.FORGET_OLD,)),
        (_W.DRAINING, _E.OWN_LOST): (_W.AT_REST, (_S.FORGET_OLD, _S.SWITCH, _S.DONE)),
        (_W.DRAINING, _E.OTHER_LOST): (_W.AT_REST, (_S.RESUME, _S.FAIL)),
        (_W.DRAINING, _E.OVERDUE): (_W.AT_REST, (_S.LEAVE_OLD, _S.FORGET_OLD, _S.SWITCH, _S.LATE)),
        (_W.SEEKING, _E.OPENED): (_W.ASKING, (_S.GREET,)),
        (_W.SEEKING, _E.UNREACHABLE): _LOOK_ELSEWHERE,
        (_W.SEEKING, _E.OTHER_LOST): _LOOK_ELSEWHERE,
        (_W.SEEKING, _E.OVERDUE): _LOOK_ELSEWHERE,
        (_W.SEEKING, _E.HOPELESS): (_W.ENDED, (_S.FAIL, _S.END)),
        (_W.ASKING, _E.ACCEPTED): (_W.AT_REST, (_S.REPLAY, _S.SWITCH, _S.DONE)),
        (_W.ASKING, _E.TAKEN_OVER): (_W.AT_REST, (_S.REPLAY, _S.SWITCH, _S.DONE)),
        (_W.ASKING, _E.REFUSED): _LOOK_ELSEWHERE,
        (_W.ASKING, _E.OTHER_LOST): _LOOK_ELSEWHERE,
        (_W.ASKING, _E.OVERDUE): _LOOK_ELSEWHERE,
        (_W.ASKING, _E.HOPELESS): (_W.ENDED, (_S.FAIL, _S.END)),
        **{(way, _E.CLIENT_GONE): (_W.ENDED, (_S.FAIL, _S.END)) for way in ClientWay if way is not _W.ENDED},
    }
)

FLOWING = frozenset({ClientWay.AT_REST, ClientWay.DIALING})
"""What the client sends goes on at once."""
WITH_SITE = frozenset({ClientWay.AT_REST, ClientWay.DIALING, ClientWay.GREETING, ClientWay.DRAINING})


def after(way: ClientWay, event: Event) -> tuple[ClientWay, tuple[MoveStep, ...]]:
    """Raises `LocalProtocolError` for what cannot happen."""
    try:
        return TABLE[way, event]
    except KeyError:
        raise LocalProtocolError(f"{event.value} while {way.value}") from None
