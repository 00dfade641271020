"""Two members exchange their whole tables over a stream (push/pull), each proving the key to the other.

Owns one conversation: each side sends a random nonce, then the dialer its table, then the acceptor its own.
Every table's proof covers both nonces and who speaks, so that a recording proves nothing in another
conversation. Invariants: nothing of a table is looked at before its proof is right; nothing is gathered for
a peer without the key, and at most `MOST_TABLE` bytes for a member. Must not know: the connection, what
follows from a table.

    hello = "BWX" version:u8 nonce:16      table = length:u32 proof:32 entry+ proof:32
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Protocol

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership import wire

HELLO = b"BWX" + bytes([wire.VERSION])
MOST_TABLE = 4 << 20
"""Bytes: some 40,000 members."""
_NONCE, _MAC = 16, 32
_LENGTH = Struct("!I")


class MemberTables(Protocol):
    """`Swim`, as an exchange sees it."""

    key: bytes

    def table(self) -> list[wire.TableEntry]:
        """This node's own entry is the first."""

    def merge(self, entries: Iterable[wire.TableEntry], peer: str, now: float) -> None: ...

    def refuse(self, cause: str) -> None: ...


class Exchange:
    def __init__(self, tables: MemberTables, dials: bool, random_bytes: Callable[[int], bytes]) -> None:
        self._tables = tables
        self._dials = dials
        self._nonce = random_bytes(_NONCE)
        self._theirs: bytes | None = None
        self._buffer = b""
        self._length: int | None = None
        """Of the other's table, once that is proved."""
        self.finished = False
        """Then, what `receive` returned having been sent, the connection can be closed."""

    def start(self) -> bytes:
        """The first bytes, of both sides."""
        return HELLO + self._nonce

    def receive(self, data: bytes, now: float) -> bytes:
        """What to answer. Raises `RemoteProtocolError` if there is no use in going on; that is counted."""
        self._buffer += data
        answer = b""
        if self._theirs is None and self._said_hello() and self._dials:
            answer = self._own_table()
        if self._theirs is not None and not self.finished and (content := self._whole_table()) is not None:
            self._take(content, now)
            self.finished = True
            if not self._dials:
                answer += self._own_table()
        return answer

    def _said_hello(self) -> bool:
        buffer = self._buffer
        if not HELLO.startswith(buffer[: len(HELLO)]):
            known = HELLO[:3].startswith(buffer[:3])
            raise self._refused("version" if known else "malformed", "no exchange of this version")
        if len(buffer) < len(HELLO) + _NONCE:
            return False
        self._theirs = buffer[len(HELLO) : len(HELLO) + _NONCE]
        self._buffer = buffer[len(HELLO) + _NONCE :]
        return True

    def _whole_table(self) -> bytes | None:
        """The table's content, once it is all there and proved; its length is proved before the rest is
        waited for."""
        if self._length is None:
            if len(self._buffer) < _LENGTH.size + _MAC:
                return None
            length = self._proved(_LENGTH.size, b"length")
            (self._length,) = _LENGTH.unpack(length)
            if self._length > MOST_TABLE:
                raise self._refused("too_long", f"a table of {self._length} bytes")
            self._buffer = self._buffer[_LENGTH.size + _MAC :]
        if len(self._buffer) < self._length + _MAC:
            return None
        return self._proved(self._length, b"table")

    def _proved(self, size: int, what: bytes) -> bytes:
        """The first bytes of the buffer, if the proof that follows it is right."""
        content, proof = self._buffer[:size], self._buffer[size : size + _MAC]
        if not hmac.compare_digest(proof, self._proof(what, content, by_dialer=not self._dials)):
            raise self._refused("unauthentic", "the other has another key")
        return content

    def _take(self, content: bytes, now: float) -> None:
        try:
            entries = wire.decode_table(content)
        except wire.MalformedMessage:
            raise self._refused("malformed", "a table that cannot be read") from None
        if not entries:
            raise self._refused("malformed", "a table without its own node")
        self._tables.merge(entries, entries[0].claim.id, now)

    def _own_table(self) -> bytes:
        content = wire.encode_table(self._tables.table())
        length = _LENGTH.pack(len(content))
        parts = (
            length,
            self._proof(b"length", length, self._dials),
            content,
            self._proof(b"table", content, self._dials),
        )
        return b"".join(parts)

    def _proof(self, what: bytes, content: bytes, by_dialer: bool) -> bytes:
        assert self._theirs is not None
        nonces = self._nonce + self._theirs if self._dials else self._theirs + self._nonce
        role = b"push" if by_dialer else b"pull"
        return hmac.digest(self._tables.key, role + what + nonces + content, "sha256")

    def _refused(self, cause: str, why: str) -> RemoteProtocolError:
        self._tables.refuse(cause)
        return RemoteProtocolError(f"an exchange of tables failed: {why}")
