"""Neighbours that somebody named: the configuration, as it is read and read again, or a command.

Owns which those are. Invariants: each is dialed as long as it is named; one that is named no more is removed,
with its pending messages, and so is one whose operator removed this node. Must not know: how links are kept
up, what is sent on them, members of a cluster, who need no naming.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from brokerweave.config import Address
from brokerweave.config.values import ID, BadValue
from brokerweave.errors import ConfigError
from brokerweave.node.core import NodeCore
from brokerweave.runtime.admin import Command
from brokerweave.runtime.neighbours import NodeLinks

log = logging.getLogger("brokerweave.node")


class Configured:
    def __init__(self, core: NodeCore, links: NodeLinks) -> None:
        self._core = core
        self._links = links
        self._named: set[str] = set()

    def __contains__(self, neighbour: object) -> bool:
        return neighbour in self._named

    def add(self, neighbour: str, address: Address) -> None:
        self._named.add(neighbour)
        self._core.add_neighbour(neighbour)
        self._links.dial(neighbour, address)

    def remove(self, neighbour: str) -> None:
        self._named.discard(neighbour)
        self._links.hang_up(neighbour, removed=True)
        if neighbour in self._core.neighbour_table:  # it may have been forgotten while it was away
            self._core.remove_neighbour(neighbour)

    def change(self, before: dict[str, Address], wanted: dict[str, Address]) -> None:
        """The configuration named those before, each with its address, and wants these now."""
        for neighbour in self._named - wanted.keys():
            self.remove(neighbour)
        for neighbour, address in wanted.items():
            if before.get(neighbour) != address or neighbour not in self._named:
                self._links.hang_up(neighbour, removed=False)
                self.add(neighbour, address)

    def left(self, neighbour: str) -> None:
        """The other side's operator removed this node."""
        log.warning("node %s removed this node from its neighbours", neighbour)
        self.remove(neighbour)

    def commands(self, rows: Callable[[], object]) -> dict[str, Command]:
        """By name on the admin socket; each is answered with `rows`, the neighbours that there are then."""

        def add(request: dict[str, object]) -> object:
            self.add(*self._asked_for(request))
            return {"neighbours": rows()}

        def remove(request: dict[str, object]) -> object:
            self.remove(self._known(request))
            return {"neighbours": rows()}

        return {"add_neighbour": add, "remove_neighbour": remove}

    def _asked_for(self, request: dict[str, object]) -> tuple[str, Address]:
        try:
            neighbour = str(ID.read(request.get("id")))
            address = Address.parse(str(request.get("address")))
        except BadValue as error:
            raise ConfigError(f"a neighbour's id and address should be {error}") from error
        if neighbour == self._core.node_id:
            raise ConfigError(f"{neighbour} is this node itself")
        if neighbour in self._named:
            raise ConfigError(f"{neighbour} is a neighbour already; remove it first to change its address")
        return neighbour, address

    def _known(self, request: dict[str, object]) -> str:
        neighbour = str(request.get("id"))
        if neighbour not in self._core.neighbour_table:
            known = ", ".join(self._core.neighbour_table.ids()) or "none"
            raise ConfigError(f"{neighbour} is not a neighbour; known are {known}")
        return neighbour
