"""What a tunnel asks of the sockets around it.

Must not know: how it is done.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.transitions import MoveStep
from brokerweave.mqtt.packets import Connect


class TunnelHost(Protocol):
    """The sockets. None of these calls back into the tunnel at once."""

    def to_client(self, data: bytes) -> None: ...

    def to_site(self, link: SiteLink, data: bytes) -> None: ...

    def close_site(self, link: SiteLink) -> None:
        """What was written still goes out. Nothing more is told of it."""

    def close_client(self) -> None: ...

    def arrived(self) -> None:
        """CONNECT was read: look for a site with `seek`."""

    def seek(self) -> None:
        """Dial the next site that may answer."""

    def dial(self) -> None:
        """Dial the site of the order."""

    def announcement(self, link: SiteLink, old: str) -> bytes:
        """What goes to a site before CONNECT."""

    def clear_session(self, site: str, connect: Connect) -> None:
        """Connect there in the client's stead, and leave again: its session there is to end."""

    def draw_id(self) -> str:
        """For a client that has none."""

    def settled(self, step: MoveStep, why: str) -> None:
        """How an order, or a search, ended: DONE, LATE, REFUSE or FAIL."""
