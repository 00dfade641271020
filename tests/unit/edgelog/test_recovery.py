"""Crashes, torn tails, flipped bits, missing pieces: what a start and a reader make of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.edgelog.layout import Damage, DamagedLog, Position
from brokerweave.edgelog.reader import LogReader, SegmentInfo, Skipped
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.errors import BrokerweaveError, ConfigError
from tests.unit.edgelog.logs import SMALL, FakeDisk, flip, payloads, read, segment_files, write_block

TINY = Policy(fsync="never", max_bytes=1 << 14, min_free=0)
"""Segments of 1 KiB."""
ALWAYS = Policy(fsync="always", max_bytes=1 << 20, min_free=0)


def crash(folder: Path, at: int) -> None:
    """Leave the first `at` bytes of everything that was ever written to segments, in order."""
    for path in segment_files(folder):
        size = path.stat().st_size
        if at <= 0:
            path.unlink()
        elif size > at:
            path.write_bytes(path.read_bytes()[:at])
        at -= size


def restart(folder: Path, policy: Policy = SMALL) -> tuple[LogWriter, list[str]]:
    warnings: list[str] = []
    return LogWriter(folder, "a", policy, warnings.append, FakeDisk()), warnings


@given(
    blocks=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), min_size=1, max_size=12),
    fraction=st.floats(0, 1),
    more=st.lists(st.binary(max_size=50), max_size=3),
)
def test_a_crash_at_any_byte_leaves_a_prefix_and_writing_goes_on_behind_it(
    blocks: list[list[bytes]], fraction: float, more: list[bytes]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer, _ = restart(folder, TINY)
        for block in blocks:
            write_block(writer, *block)
        writer.close()
        total = sum(path.stat().st_size for path in segment_files(folder))
        crash(folder, int(total * fraction))
        writer, _ = restart(folder, TINY)
        left = payloads(folder)
        written = [payload for block in blocks for payload in block]
        assert left == written[: len(left)]
        assert len(left) in {sum(map(len, blocks[:n])) for n in range(len(blocks) + 1)}
        if fraction == 1:
            assert left == written
        for payload in more:
            write_block(writer, payload)
        writer.close()
        found = read(folder)
        assert [row.payload for row in found] == left + more
        first = found[0].sequence if found else 0
        assert [row.sequence for row in found] == list(range(first, first + len(found)))
        assert len({row.position for row in found}) == len(found)
        assert {row.epoch for row in found[len(left) :]} <= {2}


@given(place=st.floats(0, 1), bit=st.integers(0, 7), safe=st.booleans())
def test_a_flipped_bit_anywhere_is_found_and_never_skipped_silently(
    place: float, bit: int, safe: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer, _ = restart(folder, ALWAYS if safe else SMALL)
        for number in range(5):
            write_block(writer, b"%d-0" % number, b"%d-1" % number)
        writer.close()
        (path,) = segment_files(folder)
        data = bytearray(path.read_bytes())
        at = int(place * (len(data) - 1))
        data[at] ^= 1 << bit
        path.write_bytes(data)
        with pytest.raises(DamagedLog) as caught:
            payloads(folder)
        assert caught.value.damage.offset <= at < max(caught.value.damage.end, at + 1)
        restarted, warnings = restart(folder, ALWAYS if safe else SMALL)
        restarted.close()
        whole = [b"%d-%d" % (number, row) for number in range(5) for row in range(2)]
        try:
            left = payloads(folder)
        except DamagedLog:
            assert len(warnings) == 1
            assert "damaged" in warnings[0]
        else:  # the last block, or the only header, of a log that was never fsynced: a torn tail
            assert not safe
            assert left in ([], whole[:8])
            assert ["lost" in warning for warning in warnings] == [True]


def test_a_reader_goes_behind_damage_only_if_told_to_and_counts_it(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path)
    for number in range(4):
        write_block(writer, b"%d" % number, b"-")
    path = segment_files(tmp_path)[0]
    flip(path, path.stat().st_size // 2)
    with pytest.raises(DamagedLog, match=r"damaged at byte .*rows 3 to 4 of epoch 1|rows 5 to 6 of epoch 1"):
        payloads(tmp_path)
    skipped = Skipped()
    assert len(payloads(tmp_path, skipped=skipped)) == 6
    assert skipped.damaged == 2
    writer.close()


def test_damage_is_counted_so_far_as_it_lies_in_what_is_asked_for(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path)
    write_block(writer, b"1")
    write_block(writer, b"2", b"3", b"4", b"5")
    path = segment_files(tmp_path)[0]
    flip(path, path.stat().st_size - 1)
    write_block(writer, b"6")
    counts = []
    for after, up_to in ((0, 2), (2, 4), (4, 6)):
        skipped = Skipped()
        list(LogReader(tmp_path).blocks(Position(1, after), Position(1, up_to), skipped))
        counts.append(skipped.damaged)
    assert counts == [1, 2, 1]
    writer.close()


def test_damage_at_the_end_is_counted_once_however_often_a_reader_asks(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path)
    write_block(writer, b"0")
    write_block(writer, b"1", b"2")
    path = segment_files(tmp_path)[0]
    flip(path, path.stat().st_size - 1)
    skipped = Skipped()
    assert payloads(tmp_path, skipped=skipped) == [b"0"]
    for _ in range(3):
        assert payloads(tmp_path, Position(1, 1), skipped) == []
    assert (skipped.damaged, skipped.up_to) == (2, Position(1, 3))
    write_block(writer, b"3")
    assert payloads(tmp_path, Position(1, 1), skipped) == [b"3"]
    assert skipped.damaged == 2
    writer.close()


@pytest.mark.parametrize("policy", [SMALL, ALWAYS], ids=["never", "always"])
def test_a_zeroed_tail_is_cut_off_and_the_rows_before_it_stay(tmp_path: Path, policy: Policy) -> None:
    writer, _ = restart(tmp_path, policy)
    write_block(writer, b"kept")
    writer.close()
    with segment_files(tmp_path)[0].open("ab") as file:
        file.write(bytes(5000))
    writer, warnings = restart(tmp_path, policy)
    write_block(writer, b"new")
    assert payloads(tmp_path) == [b"kept", b"new"]
    assert warnings == []
    writer.close()


def test_rows_that_were_fsynced_and_are_gone_are_damage_not_a_torn_tail(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path, ALWAYS)
    write_block(writer, b"first")
    write_block(writer, b"second")
    writer.close()
    path = segment_files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])
    writer, warnings = restart(tmp_path, ALWAYS)
    assert "rows from 2 on" in warnings[0]
    write_block(writer, b"third")
    with pytest.raises(DamagedLog) as caught:
        payloads(tmp_path)
    assert (caught.value.damage.first, caught.value.damage.last) == (2, 2)
    assert payloads(tmp_path, Position(1, 2)) == [b"third"]
    writer.close()


def test_a_truncated_or_missing_segment_shows_as_a_gap(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path, TINY)
    for number in range(12):
        write_block(writer, b"%d" % number * 200)
    writer.close()
    folder = tmp_path / "copy"
    for damage in ("cut", "gone"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path, folder)
        path = segment_files(folder)[1]
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:100])
        found = list(LogReader(folder).verify())
        assert [each for each in found if isinstance(each, Damage)] != []
        assert any(isinstance(each, SegmentInfo) for each in found)
        with pytest.raises(DamagedLog):
            payloads(folder)


def test_a_sound_log_verifies_without_damage(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path, TINY)
    for number in range(12):
        write_block(writer, b"%d" % number * 200)
    found = list(LogReader(tmp_path).verify())
    assert len(found) == len(segment_files(tmp_path)) > 2
    assert not any(isinstance(each, Damage) for each in found)
    writer.close()


def test_a_segment_that_is_just_being_begun_is_no_damage(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path)
    write_block(writer, b"x")
    segment_files(tmp_path)[0].with_name(f"{1:010}-{2:020}.seg").write_bytes(b"BWSEG")
    assert [type(each) for each in LogReader(tmp_path).verify()] == [SegmentInfo]
    assert payloads(tmp_path) == [b"x"]
    writer.close()


def test_a_log_keeps_its_id_over_restarts_and_empty_epochs_leave_no_files(tmp_path: Path) -> None:
    ids = set()
    for _ in range(3):
        writer, _ = restart(tmp_path)
        ids.add(writer.identity.log_id)
        writer.close()
    assert len(ids) == 1
    assert segment_files(tmp_path) == []
    assert LogReader(tmp_path).identity().epoch == 3


def test_one_log_has_one_writer(tmp_path: Path) -> None:
    writer, _ = restart(tmp_path)
    with pytest.raises(ConfigError, match="in use by another node"):
        restart(tmp_path)
    writer.close()
    restart(tmp_path)[0].close()


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        writer, _ = restart(tmp_path / name)
        write_block(writer, b"x")
        writer.close()
    shutil.copy(segment_files(tmp_path / "a")[0], segment_files(tmp_path / "b")[0])
    with pytest.raises(BrokerweaveError, match="belongs to another log"):
        restart(tmp_path / "b")
