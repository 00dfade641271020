"""The duplicate window: which messages of which origin were here before.

Owns one window of sequences per origin and epoch. Invariants: a message inside the window is accepted once;
one that is older than the window is refused and counted, never guessed; at most `origins` origins with
`epochs` epochs each are kept, and all but the newest two share the room of one, so memory is bounded by
`origins` x 3 x `width` bits. The cost is per run, not per message. Must not know: where messages came from or
go to.
"""

from __future__ import annotations

import struct
from collections import OrderedDict

from brokerweave.errors import BrokerweaveError

_BLOCK = 1024
"""Sequences in one bitmap. Runs are shorter, mostly; bigger bitmaps cost more to change."""

_FULL = (1 << _BLOCK) - 1
_CLOSED = 1 << 62
"""The highest sequence of an epoch of which nothing is accepted any more."""
_ORIGIN_HEAD = struct.Struct(">HB")  # an origin of a run may take 255 bytes, and a lane follows it
_EPOCH_HEAD = struct.Struct(">QqI")
_BLOCK_HEAD = struct.Struct(">QB")


class _Epoch:
    """The sequences seen in one epoch, as bitmaps by block; blocks without any are absent."""

    __slots__ = ("blocks", "highest", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.highest = -1
        self.blocks: dict[int, int] = {}

    def mark(self, first: int, last: int) -> list[tuple[int, int]]:
        """Mark first..last as seen; returns those that were not, as (first, count), in order."""
        fresh: list[tuple[int, int]] = []
        for block in range(first // _BLOCK, last // _BLOCK + 1):
            base = block * _BLOCK
            low, high = max(first - base, 0), min(last - base, _BLOCK - 1)
            wanted = ((1 << (high - low + 1)) - 1) << low
            seen = self.blocks.get(block, 0)
            marked = seen | wanted
            # One shared number for all full blocks: most of them are full where everything arrives.
            self.blocks[block] = _FULL if marked == _FULL else marked
            new = [(low, high - low + 1)] if not seen & wanted else _ones(wanted & ~seen)
            for start, count in new:
                if fresh and sum(fresh[-1]) == base + start:
                    fresh[-1] = (fresh[-1][0], fresh[-1][1] + count)
                else:
                    fresh.append((base + start, count))
        return fresh

    def advance(self, highest: int, width: int) -> None:
        """Move the window up and forget the blocks below it."""
        old, new = (self.highest - width) // _BLOCK, (highest - width) // _BLOCK
        self.highest = highest
        if new <= max(old, 0):
            return
        if new - old <= len(self.blocks):
            for block in range(max(old, 0), new):
                self.blocks.pop(block, None)
        else:
            self.blocks = {block: bits for block, bits in self.blocks.items() if block >= new}


class DuplicateWindow:
    """`width` is how many sequences back a message may arrive late, per origin.

    It should cover all that the outboxes on its way can hold. `origins` should exceed the number of
    nodes: an origin that is forgotten starts over, and its repeated messages would pass. An origin has an
    epoch for each time that it was started: where it is restarted again and again, what waits for a link may
    come some epochs late, by another way than what it sent since.
    """

    def __init__(self, width: int, origins: int = 10_000, epochs: int = 16) -> None:
        self.width = width
        self.origins = origins
        self.epochs = epochs
        self.suppressed = 0
        """Messages that were here before."""
        self.refused_old = 0
        """Messages older than the window, or of an epoch older than those kept."""
        self.evicted = 0
        """Origins forgotten to make room."""
        # Newest epoch first; least recently used origin first.
        self._epochs: OrderedDict[str, list[_Epoch]] = OrderedDict()

    def accept(self, origin: str, epoch: int, first: int, count: int) -> list[tuple[int, int]]:
        """Mark a run as seen; returns the parts of it that are new, as (offset, count)."""
        known = self._find(origin, epoch)
        if known is None:
            self.refused_old += count
            return []
        last = first + count - 1
        start = first
        floor = known.highest - self.width
        if first <= floor:
            start = min(floor, last) + 1
            self.refused_old += start - first
            if start > last:
                return []
        fresh = known.mark(start, last)
        if last > known.highest:
            known.advance(last, self.width)
        self.suppressed += last - start + 1
        for _, new in fresh:
            self.suppressed -= new
        return [(sequence - first, new) for sequence, new in fresh]

    def knows(self, origin: str, epoch: int, sequence: int) -> bool:
        """Whether a message was seen, or is too old to be told from one that was."""
        for known in self._epochs.get(origin, ()):
            if known.number == epoch:
                block, bit = divmod(sequence, _BLOCK)
                return sequence <= known.highest - self.width or bool(known.blocks.get(block, 0) >> bit & 1)
        return False

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""
        assert len(self._epochs) <= self.origins, "too many origins are kept"
        for origin, epochs in self._epochs.items():
            numbers = [known.number for known in epochs]
            assert 0 < len(epochs) <= self.epochs, f"{len(epochs)} epochs of {origin} are kept"
            assert numbers == sorted(set(numbers), reverse=True), f"the epochs of {origin} are out of order"
            for known in epochs:
                lowest = (known.highest - self.width) // _BLOCK
                assert all(lowest <= block <= known.highest // _BLOCK for block in known.blocks), (
                    f"the window of {origin} holds sequences outside of it"
                )

    def snapshot(self) -> bytes:
        """Everything but the counters, for `restore`."""
        parts = []
        for origin, epochs in self._epochs.items():
            name = origin.encode()
            parts += [_ORIGIN_HEAD.pack(len(name), len(epochs)), name]
            for known in epochs:
                parts.append(_EPOCH_HEAD.pack(known.number, known.highest, len(known.blocks)))
                for block, bits in known.blocks.items():
                    data = b"" if bits == _FULL else bits.to_bytes((bits.bit_length() + 7) // 8, "little")
                    parts += [_BLOCK_HEAD.pack(block, len(data)), data]
        return b"".join(parts)

    def restore(self, data: bytes) -> None:
        """Take over what `snapshot` gave; raises and stays empty if it is damaged."""
        self._epochs.clear()
        restored: OrderedDict[str, list[_Epoch]] = OrderedDict()
        try:
            position = 0
            while position < len(data):
                position, origin, epochs = _read_origin(data, position)
                restored[origin] = epochs
        except (struct.error, UnicodeDecodeError):
            raise BrokerweaveError("the stored duplicate window is damaged") from None
        while len(restored) > self.origins:
            restored.popitem(last=False)
        self._epochs = restored

    def _find(self, origin: str, epoch: int) -> _Epoch | None:
        """The window of this epoch, made if need be; None if the epoch is too old."""
        epochs = self._epochs.get(origin)
        if epochs is None:
            epochs = self._epochs[origin] = [_Epoch(epoch)]
            if len(self._epochs) > self.origins:
                self._epochs.popitem(last=False)
                self.evicted += 1
            return epochs[0]
        self._epochs.move_to_end(origin)
        for known in epochs:
            if known.number == epoch:
                return known
        if len(epochs) == self.epochs and epoch < epochs[-1].number:
            return None
        made = _Epoch(epoch)
        epochs.append(made)
        epochs.sort(key=lambda one: -one.number)
        del epochs[self.epochs :]
        self._close_oldest(epochs)
        return made

    def _close_oldest(self, epochs: list[_Epoch]) -> None:
        """All epochs but two get the room of one together."""
        room = self.width // _BLOCK + 2
        for known in epochs[2:]:
            room -= len(known.blocks)
            if room < 0:
                known.highest, known.blocks = _CLOSED, {}


def _ones(bits: int) -> list[tuple[int, int]]:
    """The stretches of ones in `bits`, lowest first, as (position, length)."""
    stretches = []
    position = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        stretches.append((position + zeros, ones))
        position += zeros + ones
    return stretches


def _read_origin(data: bytes, position: int) -> tuple[int, str, list[_Epoch]]:
    length, count = _ORIGIN_HEAD.unpack_from(data, position)
    if not length or not count:
        raise struct.error
    position += _ORIGIN_HEAD.size + length
    origin = data[position - length : position].decode()
    epochs = []
    for _ in range(count):
        number, highest, blocks = _EPOCH_HEAD.unpack_from(data, position)
        position += _EPOCH_HEAD.size
        known = _Epoch(number)
        known.highest = highest
        for _ in range(blocks):
            block, size = _BLOCK_HEAD.unpack_from(data, position)
            position += _BLOCK_HEAD.size + size
            if position > len(data):
                raise struct.error
            known.blocks[block] = int.from_bytes(data[position - size : position], "little") or _FULL
        epochs.append(known)
    return position, origin, epochs
