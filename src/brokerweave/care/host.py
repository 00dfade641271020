"""What care uses of its node.

Owns these interfaces; `node.core` implements them. Must not know: the node's classes, sockets, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from brokerweave.links.injector import Injector
from brokerweave.links.lane import Lane
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.stamp import Stamps
from brokerweave.plugin import Cut, Timer
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord

if TYPE_CHECKING:
    from brokerweave.care.moves import MoveResult


class CareSettings(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def ordered(self) -> bool:
        """Each lane numbers its own messages."""


class SessionBook(Protocol):
    """The sessions of clients here."""

    @property
    def records(self) -> Mapping[str, SessionRecord]: ...

    def of(self, pair: Pair) -> SessionRecord | None:
        """The pair's record; None if another pair has taken the session over."""

    def forget(self, record: SessionRecord) -> None:
        """A session is over."""


class LinkedNode(Protocol):
    """A neighbour."""

    @property
    def lanes(self) -> Sequence[Lane]: ...


class LinkTable(Protocol):
    """The neighbours by id."""

    def get(self, identifier: str) -> LinkedNode | None: ...

    def __contains__(self, identifier: object) -> bool: ...

    def __getitem__(self, identifier: str) -> LinkedNode: ...


class RetainedComparer(Protocol):
    def missed(self, neighbour: str) -> None:
        """Compare retained messages with a neighbour, which may lack one."""


class WillPublisher(Protocol):
    def publish_will(self, will: Will, version: int, sender: tuple[str, int]) -> None:
        """Publish the will of a client whose node is dead, here and everywhere."""


class CareHost(Protocol):
    """The node."""

    controls: dict[str, Callable[[str, bytes], None]]
    """Who hears of control packets, by topic: (neighbour, payload)."""

    @property
    def node_id(self) -> str: ...

    @property
    def connects(self) -> int:
        """The number of the last CONNECT."""

    @property
    def settings(self) -> CareSettings: ...

    @property
    def sessions(self) -> SessionBook: ...

    @property
    def injectors(self) -> Sequence[Injector]: ...

    @property
    def stamps(self) -> Stamps: ...

    @property
    def passes_user_properties(self) -> bool:
        """Whether the broker delivers stamps, as far as is known."""

    @property
    def neighbour_table(self) -> LinkTable: ...

    @property
    def retained(self) -> RetainedComparer: ...

    @property
    def publisher(self) -> WillPublisher: ...

    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def count(self, counter: str, amount: int = 1) -> None: ...

    def neighbours(self) -> tuple[str, ...]:
        """Ids of the neighbours that get messages."""

    def cut(self, neighbour: str) -> Cut:
        """Where this node stands: what it routed so far."""

    def send_own(self, neighbour: str, topic: str, payload: bytes) -> None:
        """Send a control packet, in order with the strategy's."""

    def move_ended(self, result: MoveResult) -> None:
        """A planned move to this site is over."""

    def redelivering(self, client: str, publishes: list[Publish]) -> None:
        """A client is about to get from this node what it missed."""
