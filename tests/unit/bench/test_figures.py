"""Which measurement stands for a run, and when indexes are to be computed anew."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from brokerweave.bench import figures
from brokerweave.bench.figures import Distribution, EventPhase, Indexes, Usage
from brokerweave.bench.folder import Measurement, RunFolder
from brokerweave.errors import ConfigError
from tests.unit.bench.test_trust import INDEXES, MEASUREMENT, RUN


def measured(number: int, rate: float, delivered: float, **more: object) -> tuple[Measurement, Indexes]:
    indexes = replace(
        INDEXES,
        id=number,
        rate=rate,
        ingress_per_s=rate,
        egress_per_s=2 * rate * delivered,
        **more,  # type: ignore[arg-type]
    )
    measurement = replace(MEASUREMENT, id=number, rate=rate, name=indexes.name, repeat=indexes.repeat)
    return measurement, indexes


def test_a_search_ends_with_its_highest_rate_under_the_limit() -> None:
    tried = [measured(1, 100, 1.0), measured(2, 400, 0.5), measured(3, 200, 0.99), measured(4, 210, 0.989)]
    (found,) = figures.results(RUN, *zip(*tried, strict=True))
    assert (found.indexes.rate, found.tried, found.found) == (200, 4, True)


def test_of_a_rate_that_was_measured_again_the_last_measurement_counts() -> None:
    tried = [measured(1, 100, 1.0), measured(2, 120, 1.0), measured(3, 120, 0.9), measured(4, 110, 0.9)]
    (found,) = figures.results(RUN, *zip(*tried, strict=True))
    assert (found.indexes.rate, found.tried) == (100, 4)
    assert found.miss == tried[3][0]


def test_a_search_without_a_rate_under_the_limit_ends_with_its_slowest_and_says_so() -> None:
    tried = [measured(1, 100, 0.9), measured(2, 400, 0.5)]
    (found,) = figures.results(RUN, *zip(*tried, strict=True))
    assert (found.indexes.rate, found.found) == (100, False)


def test_repetitions_and_names_are_kept_apart() -> None:
    tried = [measured(1, 100, 1.0), measured(2, 110, 1.0, repeat=1), measured(3, 90, 1.0, name="S1")]
    found = figures.results(RUN, *zip(*tried, strict=True))
    assert [(each.name, each.repeat) for each in found] == [("C sf", 0), ("C sf", 1), ("S1", 0)]


def test_without_a_search_every_measurement_is_a_result_whatever_it_delivered() -> None:
    tried = [measured(1, 100, 0.8), measured(2, 100, 1.0), measured(3, 100, 1.0, publishers=50)]
    found = figures.results(replace(RUN, kind="pairs"), *zip(*tried, strict=True))
    assert [(each.publishers, each.repeat, each.found) for each in found] == [
        (10, 0, True),
        (10, 1, True),
        (50, 0, True),
    ]


def test_indexes_come_back_as_written_and_are_out_of_date_when_measurements_are_newer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin_measurement()
    folder.end_measurement(MEASUREMENT)
    assert not figures.up_to_date(folder)
    phases = (EventPhase("before", 7.0, Distribution(1, 2.0), Distribution()),)
    indexes = replace(INDEXES, usage=(Usage("load/0", 0.5, 0.6, 7),), noise=None, phases=phases)
    figures.write(folder, [indexes])
    assert figures.read(folder) == [indexes]
    assert figures.up_to_date(folder)
    os.utime(folder.folder_of(1) / "measurement.json", (2e9, 2e9))
    assert not figures.up_to_date(folder)


def test_damaged_indexes_are_named_in_one_line_and_computed_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.indexes_json.write_text('{"measurements": [{}]}')
    with pytest.raises(ConfigError, match=r"indexes\.json"):
        figures.read(folder)
    assert not figures.up_to_date(folder)


def test_where_nothing_was_sent_nothing_is_under_the_limit() -> None:
    nothing = replace(INDEXES, ingress_per_s=0.0, egress_per_s=0.0, expected=0)
    assert (nothing.delivered, nothing.under_limit) == (0.0, False)
