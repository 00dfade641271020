"""What a start finds: the torn tail of a crash is cut off, anything else that is not whole is damage.

Owns the difference between the two. Invariants: only the newest segment is cut, only behind its last whole
block, and only what was never safe on the disk; rows that were whole stay, under their positions. Must not
know: what will be written next.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from brokerweave.edgelog import folder as files
from brokerweave.edgelog.folder import LogIdentity, Segment, ServedUpTo
from brokerweave.edgelog.layout import Block, Damage, Position, SegmentHeader, decode_header, scan
from brokerweave.errors import BrokerweaveError


@dataclass(slots=True)
class Recovered:
    """The log as it is now: `identity.epoch` is this start's, `identity.next` its first sequence."""

    identity: LogIdentity
    segments: list[Segment]
    lost: int = 0
    """Rows that were served and are gone; more than 0 only after a power cut with `fsync = "never"`."""
    damage: list[Damage] = field(default_factory=list)


def recover(folder: Path, node: str, *, sync: bool = True) -> Recovered:
    """Make the folder ready for a new epoch. Raises `BrokerweaveError` or OSError if it cannot be used."""
    folder.mkdir(parents=True, exist_ok=True)
    found = files.segments(folder)
    before = files.read_identity(folder) or _identity_of(found)
    log_id = before.log_id if before else secrets.token_hex(16)
    served = files.read_served(folder)
    recovered = Recovered(LogIdentity(log_id, node, 0, 0), found)
    last = max(before.next - 1, served.served.sequence) if before else 0  # if all was trimmed
    while found:
        row = _recover_last(recovered, found[-1], served)
        if row is not None:
            last = row
            break
        empty = found.pop()  # tells nothing, and the next epochs would pile such up
        empty.path.unlink()
        last = empty.first - 1
    if served.served > Position(found[-1].epoch if found else 0, last):
        recovered.lost = max(served.served.sequence - last, 0)
    epoch = max(before.epoch if before else 0, found[-1].epoch if found else 0) + 1
    recovered.identity = LogIdentity(log_id, node, epoch, last + 1)
    if sync and found:
        with found[-1].path.open("rb") as file:
            os.fsync(file.fileno())
    files.write_identity(folder, recovered.identity)
    return recovered


def _identity_of(found: list[Segment]) -> LogIdentity | None:
    """Where log.json is missing: the newest segment that can say whose it is."""
    for segment in reversed(found):
        try:
            header, _ = segment.header()
        except ValueError:
            continue
        return LogIdentity(header.log_id, header.node, segment.epoch, header.first)
    return None


def _recover_last(recovered: Recovered, segment: Segment, served: ServedUpTo) -> int | None:
    """Cut the newest segment's torn tail; its last row's sequence, or None if it has no rows."""
    data = segment.path.read_bytes()
    try:
        header, at = decode_header(data)
    except ValueError as error:
        return _headless(recovered, segment, data, str(error), served)
    if header.log_id != recovered.identity.log_id:
        raise BrokerweaveError(
            f"{segment.path} belongs to another log ({header.log_id}); move it out of the folder to go on"
        )
    last = segment.first - 1
    for each in scan(segment.path.name, data[at:], header, at, segment.first):
        if isinstance(each, Block):
            last = each.last
        elif each.last is None and Position(segment.epoch, each.first) > served.safe:
            os.truncate(segment.path, each.offset)
        else:
            recovered.damage.append(each)
            last = _after(each, served)
    return last if last >= segment.first else None


def _headless(
    recovered: Recovered, segment: Segment, data: bytes, reason: str, served: ServedUpTo
) -> int | None:
    """A segment whose header is not whole: begun by a crash, or damaged with rows in it."""
    header = SegmentHeader(recovered.identity.log_id, "", segment.epoch, segment.first, 0)
    found = scan(segment.path.name, data, header, 0, segment.first)
    whole = [each for each in found if isinstance(each, Block)]
    if not whole and segment.start > served.safe:
        return None
    last = whole[-1].last if whole else served.safe.sequence
    name, end = segment.path.name, len(data)
    recovered.damage.append(Damage(name, 0, end, segment.epoch, segment.first, last, reason))
    return last


def _after(damage: Damage, served: ServedUpTo) -> int:
    """The last row that damage took, so that no row gets its name again."""
    if damage.last is not None:
        return damage.last
    return max(served.safe.sequence, damage.first)
