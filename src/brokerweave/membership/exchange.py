"""Two members exchange their whole tables over a stream (push/pull), each proving the key to the other.

Owns one conversation: each side sends a random nonce, then the dialer its table, then the acceptor its own.
Every table's proof covers both nonces and who speaks, so that a recording proves nothing in another
conversation. Invariants: nothing of a table is looked at before its proof is right; at most `MOST_TABLE`
bytes are gathered. Must not know: the connection, what follows from a table.

    hello = "BWX" version:u8 nonce:16      table = length:u32 (id entry*) mac:32
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


class Tables(Protocol):
    """`Swim`, as an exchange sees it."""

    key: bytes

    def table(self) -> list[wire.Entry]: ...

    def merge(self, entries: Iterable[wire.Entry], peer: str, now: float) -> None: ...

    def refuse(self, cause: str) -> None: ...


class Exchange:
    def __init__(self, tables: Tables, dials: bool, random_bytes: Callable[[int], bytes]) -> None:
        self._tables = tables
        self._dials = dials
        self._nonce = random_bytes(_NONCE)
        self._theirs: bytes | None = None
        self._buffer = b""
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
        """The table's content, once it is all there and proved."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MOST_TABLE:
            raise self._refused("too_long", f"a table of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end + _MAC:
            return None
        content, proof = self._buffer[_LENGTH.size : end], self._buffer[end : end + _MAC]
        if not hmac.compare_digest(proof, self._proof(content, by_dialer=not self._dials)):
            raise self._refused("unauthentic", "the other has another key")
        return content

    def _take(self, content: bytes, now: float) -> None:
        try:
            size = content[0] + 1 if content else 0
            peer = content[1:size].decode("ascii")
            entries = wire.decode_table(content[size:])
        except (wire.Malformed, UnicodeDecodeError):
            raise self._refused("malformed", "a table that cannot be read") from None
        self._tables.merge(entries, peer, now)

    def _own_table(self) -> bytes:
        entries = self._tables.table()
        name = entries[0].claim.id.encode()
        content = bytes([len(name)]) + name + wire.encode_table(entries)
        return _LENGTH.pack(len(content)) + content + self._proof(content, by_dialer=self._dials)

    def _proof(self, content: bytes, by_dialer: bool) -> bytes:
        assert self._theirs is not None
        nonces = self._nonce + self._theirs if self._dials else self._theirs + self._nonce
        role = b"push" if by_dialer else b"pull"
        return hmac.digest(self._tables.key, role + nonces + content, "sha256")

    def _refused(self, cause: str, why: str) -> RemoteProtocolError:
        self._tables.refuse(cause)
        return RemoteProtocolError(f"an exchange of tables failed: {why}")
