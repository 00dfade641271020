"""What the board keeps, and what Prometheus is told of it."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from brokerweave.config.values import Address
from brokerweave.errors import ConfigError
from brokerweave.lab.broker import HOST, free_port
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.status import Board, CountedSink, serve_metrics, snapshot
from brokerweave.pipeline.supervisor import JobStream


@dataclass
class FakeJob:
    name: str
    stage: int = 0

    def find(self) -> None: ...
    def start(self, spark: Any, trigger: Any) -> Any: ...
    def report(self) -> None: ...


class FakeSink:
    def __init__(self, *results: Written) -> None:
        self.results = list(results)

    def write(self, batch: Any, query: str, batch_id: int) -> Written:
        return self.results.pop(0)


def test_rows_are_counted_by_sinks_and_a_replay_adds_none() -> None:
    board = Board()
    sink = CountedSink(FakeSink(Written(5), Written(5, replayed=True), Written(7)), board)
    for batch_id in (0, 0, 1):
        sink.write(None, "bronze-site-a-12345678", batch_id)  # type: ignore[arg-type]
    board.heard("bronze-site-a", 1, 2.0)
    told = board.progress("bronze-site-a")
    assert (told.rows_total, told.rows, told.rows_per_second, told.batch) == (12, 7, 3.5, 1)


def test_a_good_batch_is_told_to_the_supervisor() -> None:
    heard: list[str] = []
    Board(heard.append).heard("silver", 0, 1.0)
    assert heard == ["silver"]


def test_prometheus_gets_lags_and_streams_and_never_a_lag_that_is_not_known() -> None:
    board = Board()
    board.wrote("silver", 30)
    board.heard("silver", 4, 1.5)
    stream = JobStream(FakeJob("silver"), state="running", failed_ever=2)
    lags: dict[str, dict[str, Any]] = {
        "x": {"node": "a", "rows_behind": 12, "seconds_behind": 0.5, "answers": True, "skipped": 7},
        "y": {"node": "b", "rows_behind": None, "seconds_behind": None, "answers": False},
    }
    status = snapshot([stream], board, running=True, lags=lags)
    address = Address(HOST, free_port())
    end = serve_metrics(address, lambda: status)
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(ConfigError, match="metrics cannot listen on"):
            serve_metrics(address, lambda: status)
    finally:
        end()
    for line in (
        'brokerweave_pipeline_rows_behind{node="a"} 12.0',
        'brokerweave_pipeline_seconds_behind{node="a"} 0.5',
        'brokerweave_pipeline_rows_skipped_total{node="a"} 7.0',
        'brokerweave_pipeline_node_answers{node="b"} 0.0',
        'brokerweave_pipeline_rows_total{stream="silver"} 30.0',
        'brokerweave_pipeline_failures_total{stream="silver"} 2.0',
        'brokerweave_pipeline_stream_running{stream="silver"} 1.0',
        'brokerweave_pipeline_last_batch{stream="silver"} 4.0',
    ):
        assert line in text
    assert 'rows_behind{node="b"}' not in text
