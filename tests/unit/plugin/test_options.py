"""Options that plug-ins declare: their types and bounds, and what an instance reads."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.plugin import Option, OptionValue, option, options_of


class Plugin:
    name: ClassVar[str] = "plugin"
    window = option(30.0, "How long.", unit="seconds", minimum=1)
    copies = option(2, "How many.", minimum=1, maximum=16)
    loud = option(False, "Whether.")
    mode = option("fast", "How.", choices=("fast", "sure"))

    def __init__(self, options: dict[str, OptionValue]) -> None:
        self.options = options


class Heir(Plugin):
    copies = option(5, "More of them.")


def test_an_instance_reads_what_is_configured_or_the_default() -> None:
    plugin = Plugin({"window": 5.0, "mode": "sure"})
    assert (plugin.window, plugin.copies, plugin.loud, plugin.mode) == (5.0, 2, False, "sure")


def test_a_class_shows_its_options_and_those_of_its_bases() -> None:
    assert list(options_of(Heir)) == ["window", "copies", "loud", "mode"]
    assert options_of(Heir)["copies"].default == 5
    assert isinstance(Plugin.window, Option)
    assert (Plugin.window.name, Plugin.window.unit) == ("window", "seconds")


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 5), ("window", 1.0), ("copies", 16), ("loud", True), ("mode", "sure")],
)
def test_good_values_are_read_in_the_type_of_the_default(name: str, value: object) -> None:
    declared = options_of(Plugin)[name]
    assert declared.problem(value) == ""
    assert type(declared.read(value)) is type(declared.default)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("window", 0.5, "a number from 1"),
        ("window", float("nan"), "a number from 1"),
        ("window", float("inf"), "a number from 1"),
        ("window", "5", "a number from 1"),
        ("window", True, "a number from 1"),
        ("copies", 17, "a whole number from 1 to 16"),
        ("copies", 2.0, "a whole number from 1 to 16"),
        ("loud", 1, "true or false"),
        ("mode", "slow", "one of 'fast', 'sure'"),
        ("mode", 7, "one of 'fast', 'sure'"),
        ("mode", ["fast"], "one of 'fast', 'sure'"),
    ],
)
def test_bad_values_are_told_in_words(name: str, value: object, problem: str) -> None:
    assert options_of(Plugin)[name].problem(value) == problem


def test_a_default_that_breaks_its_own_bounds_is_a_mistake_of_the_author() -> None:
    with pytest.raises(ValueError, match=r"2 of the option 'Too few\.' should be a whole number from 3"):
        option(2, "Too few.", minimum=3)
