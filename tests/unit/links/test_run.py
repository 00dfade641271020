from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.errors import RemoteProtocolError
from tests.unit.links.runs import frame, run


def test_a_part_has_its_own_frames_and_numbers() -> None:
    part = run(first=10, count=5).part(1, 2)
    assert (part.first, part.count) == (11, 2)
    assert part.blob == frame("m11") + frame("m12")


def test_the_whole_is_not_copied() -> None:
    whole = run(count=3)
    assert whole.part(0, 3) is whole


def test_long_frames_are_cut_at_their_ends() -> None:
    long = b"\x30\xac\x02\x00\x01t" + b"x" * 297
    assert replace(run(), count=3, blob=long * 3).part(1, 1).blob == long


@pytest.mark.parametrize("blob", [b"\x30", b"\x30\x05\x00\x01t", b"\x30\xff\xff\xff\xff\x01"])
def test_cutting_a_run_with_broken_frames_is_the_peers_fault(blob: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        replace(run(), count=2, blob=blob).part(0, 1)


@pytest.mark.parametrize(
    ("max_qos", "cap", "durable"), [(0, 2, False), (1, 0, False), (1, 1, True), (2, 2, True)]
)
def test_a_run_is_durable_if_published_and_asked_for_above_qos_0(
    max_qos: int, cap: int, durable: bool
) -> None:
    assert replace(run(), max_qos=max_qos, cap=cap).durable is durable
