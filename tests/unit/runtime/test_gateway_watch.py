"""What an operator of a gateway hears of, and how often."""

from __future__ import annotations

from brokerweave.config import Address
from brokerweave.placement.followed import SILENT
from brokerweave.runtime.gateway_watch import GatewayWatch
from brokerweave.runtime.problems import Problems


def watch(*controllers: Address) -> tuple[GatewayWatch, Problems]:
    problems = Problems("gateway")
    return GatewayWatch(controllers, problems, 0.0), problems


def test_a_controller_that_never_answers_is_named_once_and_again_after_it_was_there() -> None:
    found, problems = watch(Address("10.0.0.1", 7900))
    found.look("", SILENT)
    assert problems.warnings == []
    for now in (SILENT + 1, SILENT + 2):
        found.look("", now)
    assert len(problems.warnings) == 1
    assert "10.0.0.1:7900" in problems.warnings[0]
    problems.warnings.clear()
    found.look("c1", SILENT + 3)
    found.look("", 2 * SILENT + 3)
    assert problems.warnings == []
    found.look("", 2 * SILENT + 4)
    assert len(problems.warnings) == 1


def test_a_gateway_without_controllers_misses_none() -> None:
    found, problems = watch()
    found.look("", 10 * SILENT)
    assert problems.warnings == []


def test_that_no_site_takes_clients_is_said_with_each_reason_until_one_does() -> None:
    found, problems = watch()
    for _ in range(3):
        found.refused({"b": "no answer in time", "a": "Connection refused"})
    assert problems.warnings == ["no site takes clients: a: Connection refused; b: no answer in time"]
    problems.warnings.clear()
    found.served()
    found.refused({})
    assert problems.warnings == ["no site takes clients: none is known"]
