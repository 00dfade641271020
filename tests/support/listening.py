"""A listener's context for tests that need no node: it keeps what is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from brokerweave.plugin import (
    NodeState,
    OptionValue,
    Packet,
    Publish,
    Session,
    Timer,
)


class NoSessions:
    """A session manager for listeners that call none of it."""

    def create_session(self, packet: Packet) -> Session:
        raise NotImplementedError

    def close_session(self, session: Session) -> None:
        raise NotImplementedError

    def send(self, session: Session, packet: Packet) -> bool:
        raise NotImplementedError

    def paired(self, session: Session) -> Session | None:
        raise NotImplementedError


class FakeListenerContext:
    node_id = "n"
    state = NodeState.RUNNING

    def __init__(self, **options: OptionValue) -> None:
        self.sessions = NoSessions()
        self.options: Mapping[str, OptionValue] = options
        self.published: list[Publish] = []

    def now(self) -> float:
        return 0.0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError

    def publish(self, packet: Publish) -> bool:
        self.published.append(packet)
        return True
