"""The supervisor with streams that are no streams, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any

import pytest

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.supervisor import (
    BACK_OFF_MAX,
    TRIES_OF_A_DRAIN,
    JobStream,
    Query,
    Supervisor,
    back_off,
)


@dataclass
class FakeQuery:
    isActive: bool = True
    error: BaseException | None = None
    stopped: bool = False
    messages: list[str] = field(default_factory=list)
    triggering: list[bool] = field(default_factory=list)

    @property
    def status(self) -> Mapping[str, object]:
        active = self.triggering.pop() if self.triggering else False
        message = self.messages.pop() if self.messages else "Waiting for data to arrive"
        return {"isTriggerActive": active, "message": message}

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        assert not self.triggering, "the batch was broken off"
        self.stopped, self.isActive = True, False

    def end(self, error: BaseException | None = None) -> None:
        self.isActive, self.error = False, error


@dataclass
class FakeJob:
    name: str = "bronze-a"
    stage: int = 0
    finding: BaseException | None = None
    starting: BaseException | None = None
    queries: list[FakeQuery] = field(default_factory=list)
    triggers: list[Mapping[str, object]] = field(default_factory=list)
    reports: int = 0

    def find(self) -> object:
        if self.finding is not None:
            raise self.finding
        return None

    def start(self, spark: Any, trigger: Mapping[str, object]) -> Query:
        if self.starting is not None:
            raise self.starting
        self.triggers.append(trigger)
        self.queries.append(FakeQuery())
        return self.queries[-1]

    def report(self) -> None:
        self.reports += 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A supervisor that takes a step when it is told to."""

    def __init__(self, *jobs: FakeJob, interval: float | None = 1.0, gone: set[str] | None = None) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.gone: dict[str, object] = dict.fromkeys(gone or ())
        self.supervisor = Supervisor(
            None,  # type: ignore[arg-type]
            jobs,
            interval,
            say=self.said.append,
            given_up=lambda: self.gone,
            clock=self.clock,
        )

    def step(self, seconds: float = 0.0) -> list[str]:
        self.clock.now += seconds
        self.supervisor.step()
        for _ in range(5):
            starts = [stream.starting for stream in self.supervisor.streams if stream.starting is not None]
            if not starts:
                break
            wait(starts, timeout=10)
            self.supervisor.step()
        return [stream.state for stream in self.supervisor.streams]

    def stream(self, number: int = 0) -> JobStream:
        return self.supervisor.streams[number]


def test_all_streams_start_and_get_their_interval() -> None:
    jobs = FakeJob("bronze-a"), FakeJob("bronze-b"), FakeJob("silver", 1)
    bench = Bench(*jobs, interval=0.5)
    assert bench.step() == ["running"] * 3
    assert [job.triggers for job in jobs] == [[{"processingTime": "500 milliseconds"}]] * 3


def test_a_node_that_is_silent_is_tried_again_with_back_off_and_stops_nobody() -> None:
    away, near = FakeJob("bronze@h", finding=Unavailable("silent")), FakeJob("bronze-b")
    bench = Bench(away, near)
    assert bench.step() == ["waiting", "running"]
    assert bench.step(0.5) == ["waiting", "running"]
    for number in range(1, 20):
        assert bench.stream().failures == number
        bench.step(back_off(number) + 0.01)
    assert len([line for line in bench.said if "silent" in line]) == 1
    away.finding = None
    assert bench.step(BACK_OFF_MAX + 1) == ["running", "running"]


def test_a_stream_that_fails_starts_again_and_a_good_batch_forgives_it() -> None:
    job = FakeJob()
    bench = Bench(job)
    bench.step()
    for number in (1, 2, 3):
        job.queries[-1].end(RuntimeError("odd"))
        assert bench.step() == ["waiting"]
        assert bench.step(back_off(number) + 0.01) == ["running"]
    bench.supervisor.progressed("bronze-a")
    assert bench.stream().failures == 0
    assert bench.stream().failed_ever == 3


@pytest.mark.parametrize("where", ["finding", "starting", "running"])
def test_what_trying_again_cannot_mend_is_not_tried_again(where: str) -> None:
    job, other = FakeJob(), FakeJob("bronze-b")
    error = ConfigError("wrong token")
    if where != "running":
        setattr(job, where, error)
    bench = Bench(job, other)
    bench.step()
    if where == "running":
        job.queries[0].end(error)
        bench.step()
    assert bench.step(1000) == ["failed", "running"]
    assert bench.said.count("bronze-a: wrong token") == 1


def test_a_drain_runs_the_layers_one_after_the_other_and_reports_each() -> None:
    bronze, silver = FakeJob(), FakeJob("silver", 1)
    bench = Bench(bronze, silver, interval=None)
    assert bench.step() == ["running", "waiting"]
    assert bronze.triggers == [{"availableNow": True}]
    bronze.queries[0].end()
    assert bench.step() == ["done", "running"]
    silver.queries[0].end()
    assert bench.step() == ["done", "done"]
    assert bench.supervisor.run() is True
    assert bronze.reports >= 1


def test_a_drain_gives_a_silent_node_up_after_its_patience() -> None:
    bench = Bench(FakeJob(finding=Unavailable("silent")), FakeJob("silver", 1), interval=None)
    assert bench.step() == ["waiting", "waiting"]
    assert bench.step(11) == ["away", "running"]
    bench.supervisor.stop()
    assert bench.supervisor.run() is False


def test_a_drain_gives_up_a_stream_that_always_fails() -> None:
    job = FakeJob(starting=RuntimeError("odd"))
    bench = Bench(job, interval=None)
    for _ in range(TRIES_OF_A_DRAIN):
        bench.step(BACK_OFF_MAX)
    assert bench.stream().state == "failed"
    assert bench.said[-1] == "bronze-a: RuntimeError: odd"


def test_two_addresses_of_one_node_are_refused() -> None:
    bench = Bench(FakeJob("bronze-a"), FakeJob("bronze-a"))
    assert "failed" in bench.step()
    assert any("are both a" in line for line in bench.said)


def test_an_abandoned_node_is_left_while_it_runs_and_not_started_again() -> None:
    job, other = FakeJob(), FakeJob("bronze-b")
    bench = Bench(job, other)
    bench.step()
    bench.gone = {"bronze-a": None}
    assert bench.step(3) == ["abandoned", "running"]
    assert job.queries[0].stopped
    assert Bench(FakeJob(), gone={"bronze-a"}).step() == ["abandoned"]


def test_a_node_that_never_answered_can_be_abandoned_too() -> None:
    bench = Bench(FakeJob("bronze@h", finding=Unavailable("silent")), gone={"bronze@h"})
    assert bench.step() == ["waiting"]
    assert bench.step(3) == ["abandoned"]


def test_streams_begin_one_after_the_other() -> None:
    begun: list[FakeQuery] = []

    class Slow(FakeJob):
        def start(self, spark: Any, trigger: Mapping[str, object]) -> Query:
            assert all(query.messages == [] for query in begun), "another one begins"
            super().start(spark, trigger)
            self.queries[-1].messages = ["Initializing sources"] * 3
            begun.append(self.queries[-1])
            return self.queries[-1]

    bench = Bench(*(Slow(f"bronze-{name}") for name in "abc"))
    assert bench.step() == ["running"] * 3
    assert len(begun) == 3


def test_the_end_lets_a_running_batch_finish() -> None:
    job = FakeJob()
    bench = Bench(job)
    bench.step()
    job.queries[0].triggering = [True, True, True]
    bench.supervisor.stop()
    assert bench.supervisor.run() is True
    assert job.queries[0].stopped
    assert job.reports == 1
