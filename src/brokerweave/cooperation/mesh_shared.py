"""The mesh where thousands of nodes share one process, as in `brokerweave sim scale`.

Owns what is kept once instead of in each node: what many are told is read once, what many answer is written
once, what all rank the same is ranked once. Invariant: behaves as `Mesh`. Must not know: who runs it.
"""

from __future__ import annotations

from functools import lru_cache

from brokerweave.cooperation import adverts
from brokerweave.cooperation.mesh import Mesh, first_for
from brokerweave.plugin import Packet

KNOWN = 10_000
"""Several for each node of a mesh of a thousand."""

_read = lru_cache(KNOWN)(adverts.decode)
_answer = lru_cache(KNOWN)(adverts.encode)
_first_for = lru_cache(KNOWN)(first_for)


class SharedMesh(Mesh):
    def read(self, packet: Packet) -> adverts.Message:
        return _read(packet)

    def answer(self, heard: adverts.Heard) -> Packet:
        return _answer(heard)

    def first_for(self, node: str, count: int) -> tuple[str, ...]:
        return _first_for(node, self.live, count)
