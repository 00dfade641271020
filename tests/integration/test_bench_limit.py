"""Limits found by real measurements: of a sink whose limit is known, and after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.bench.folder import RunFolder, Times
from brokerweave.bench.limit import chosen_search, find_limit
from brokerweave.bench.load.driver import LoadTarget
from brokerweave.bench.scenario import ClientGroup, Place, Scenario
from brokerweave.bench.sink import SinkBroker
from brokerweave.errors import ConfigError

SCENARIO = Scenario(
    "sink", (Place("a"),), (ClientGroup("a", "topic1", 10, 5),), Times(0.4, 1, 0.1), interval=0.1, workers=1
)


class Interrupted(Exception):
    pass


def test_the_limit_of_a_sink_is_found_and_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    folder, rate = RunFolder(tmp_path), 700.0
    with SinkBroker(rate) as sink:
        target = LoadTarget({"a": (sink.host, sink.port)})

        def stop_after_two(_: str) -> None:
            if len(folder.measurements()) >= 2:
                raise Interrupted

        search = chosen_search("adaptive", SCENARIO.times)[1]
        with pytest.raises(Interrupted):
            find_limit(SCENARIO, target, folder, search, stop_after_two)
        assert len(folder.measurements()) == 2
        found = find_limit(SCENARIO, target, folder, chosen_search("adaptive", SCENARIO.times)[1])
        again = find_limit(SCENARIO, target, folder, chosen_search("adaptive", SCENARIO.times)[1])
        with pytest.raises(ConfigError, match="holds another search for the limit of sink"):
            find_limit(SCENARIO, target, folder, chosen_search("adaptive", SCENARIO.times, 0.5)[1])
    assert found.best is not None
    assert found.best.counters.ingress_per_s == pytest.approx(rate, rel=0.25)  # with other tests beside it
    assert found.kept == 2
    assert len(folder.measurements()) == found.measurements == again.kept
    assert again.best == found.best


@pytest.mark.slow
@pytest.mark.parametrize("rate", [300 * 1.13**power for power in range(20)])
def test_a_known_limit_is_found_20_times_out_of_20(tmp_path: Path, rate: float) -> None:
    with SinkBroker(rate) as sink:
        target = LoadTarget({"a": (sink.host, sink.port)})
        search = chosen_search("adaptive", SCENARIO.times)[1]
        found = find_limit(SCENARIO, target, RunFolder(tmp_path), search)
    assert found.best is not None
    assert found.best.counters.ingress_per_s == pytest.approx(rate, rel=0.05)
