"""Which brokers the demo takes."""

from __future__ import annotations

from brokerweave.demo.sites import PREFERRED, choose, missing


def having(*names: str) -> dict[str, str | None]:
    return {name: None if name in names else f"{name} is not installed" for name in PREFERRED}


def test_five_different_brokers_are_taken_where_they_are() -> None:
    chosen = choose(having(*PREFERRED))
    assert len(set(chosen)) == len(chosen) == 5


def test_the_node_to_be_killed_stands_before_the_sturdiest_broker() -> None:
    assert choose(having(*PREFERRED))[2] == "mosquitto"


def test_two_brokers_make_three_sites() -> None:
    assert sorted(choose(having("mosquitto", "amqtt"))) == ["amqtt", "mosquitto", "mosquitto"]


def test_a_single_broker_makes_three_sites_and_what_is_missing_is_told() -> None:
    available = having("amqtt")
    assert choose(available) == ["amqtt"] * 3
    assert "mosquitto is not installed" in missing(available)


def test_three_kinds_of_broker_are_enough_to_ask_for_no_more() -> None:
    assert missing(having(*PREFERRED[:3])) == []


def test_without_any_broker_nothing_is_chosen() -> None:
    assert choose(having()) == []
