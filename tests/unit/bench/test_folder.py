"""A run's folder: what is written comes back, and what is unfinished is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from brokerweave.bench.folder import (
    HEADER,
    RECEIVES,
    RESOURCES,
    SENDS,
    Bottleneck,
    EdgeServer,
    Measurement,
    RunEvent,
    RunFolder,
    RunInfo,
    Times,
    WindowCounts,
    log_writer,
    read_log,
)
from brokerweave.errors import ConfigError

RUN = RunInfo("limit", {"topics": 5}, {"cores": 2}, {"mosquitto": "2"}, "abc", "2026-01-01T00:00:00+00:00")
MEASUREMENT = Measurement(
    id=1,
    name="C sf",
    rate=1000.0,
    interval_s=0.05,
    times=Times(1, 4, 1),
    window_ns=(10**9, 5 * 10**9),
    servers=(EdgeServer("site1", 0.1, {"broker": 7}), EdgeServer("site2")),
    counters=WindowCounts(sent=4000, egress_per_s=1.5),
    bottleneck=Bottleneck(tool=True, reason="late"),
    events=(RunEvent(2 * 10**9, "killed site1/node"),),
)


def test_a_run_and_its_measurements_come_back_as_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_run(RUN)
    number, _ = folder.begin_measurement()
    folder.end_measurement(MEASUREMENT)
    assert number == 1
    assert folder.run() == RUN
    assert folder.measurements() == [MEASUREMENT]
    assert MEASUREMENT.seconds == 4.0


def test_a_measurement_that_did_not_end_is_not_there_and_its_number_is_used_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    number, path = folder.begin_measurement()
    (path / "sends-0.arrow").write_bytes(b"half")
    assert folder.measurements() == []
    again, same = folder.begin_measurement()
    assert (again, same, list(same.iterdir())) == (number, path, [])
    folder.end_measurement(replace(MEASUREMENT, id=again))
    assert folder.begin_measurement()[0] == again + 1


def test_a_log_comes_back_and_is_found_by_its_schema(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    number, path = folder.begin_measurement()
    for worker in range(2):
        with log_writer(path / f"receives-{worker}.arrow", RECEIVES) as writer:
            writer.write_batch(pa.record_batch([[worker], [2], [3], [4], [0], [5]], schema=RECEIVES))
    with log_writer(path / "resources.arrow", RESOURCES) as writer:
        writer.write_batch(pa.record_batch([[1], ["load/0"], [0.5], [9]], schema=RESOURCES))
    assert read_log(folder.logs(number, RECEIVES), RECEIVES)["client"].to_pylist() == [0, 1]
    assert read_log(folder.logs(number, RESOURCES), RESOURCES)["role"].to_pylist() == ["load/0"]
    assert read_log(folder.logs(number, SENDS), SENDS).num_rows == 0


def test_a_log_whose_writer_failed_is_not_there(tmp_path: Path) -> None:
    def fail() -> None:
        with log_writer(tmp_path / "sends-0.arrow", SENDS):
            raise RuntimeError("worker")

    with pytest.raises(RuntimeError, match="worker"):
        fail()
    assert not (tmp_path / "sends-0.arrow").exists()


def test_what_a_later_version_adds_is_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin_measurement()
    folder.end_measurement(MEASUREMENT)
    path = folder.folder_of(1) / "measurement.json"
    path.write_text(path.read_text().replace('"name":', '"new": 1, "name":', 1))
    assert folder.measurements() == [MEASUREMENT]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": 1}'])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match=r"run\.json") as caught:
        RunFolder(tmp_path).run()
    assert "\n" not in str(caught.value)


def test_a_log_that_is_cut_off_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "receives-0.arrow"
    with log_writer(path, RECEIVES) as writer:
        writer.write_batch(pa.record_batch([[1], [2], [3], [4], [0], [5]], schema=RECEIVES))
    for part in (path.read_bytes()[:-100], b"ARROW1", b""):
        path.write_bytes(part)
        with pytest.raises(ConfigError, match=r"receives-0\.arrow: damaged.*remove") as caught:
            read_log([path], RECEIVES)
        assert "\n" not in str(caught.value)


def test_a_damaged_measurement_is_named_with_what_to_remove(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin_measurement()
    folder.end_measurement(MEASUREMENT)
    path = folder.folder_of(1) / "measurement.json"
    for text in (path.read_text()[:100], '{"window_ns": []}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"measurement\.json.*; remove .*0001$"):
            folder.measurements()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run's folder"):
        RunFolder(tmp_path).run()
    with pytest.raises(ConfigError, match="party"):
        RunFolder(tmp_path).write_run(replace(RUN, kind="party"))


def test_the_payload_header_is_twenty_bytes() -> None:
    assert HEADER.size == 20
    assert HEADER.pack(1, 2, 3)[:4] == b"\x01\0\0\0"
