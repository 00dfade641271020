"""Asking many at once."""

from __future__ import annotations

import threading

import pytest

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.source.nodes import in_parallel


def test_answers_and_failures_come_by_key() -> None:
    def fail() -> int:
        raise ConfigError("no")

    answers, failures = in_parallel({"a": lambda: 1, "b": fail}, 30)
    assert answers == {"a": 1}
    assert isinstance(failures["b"], ConfigError)


def test_all_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)
    answers, failures = in_parallel({str(number): together.wait for number in range(3)}, 30)
    assert sorted(answers.values()) == [0, 1, 2]
    assert not failures


def test_who_never_answers_is_a_silence_and_keeps_nobody() -> None:
    never = threading.Event()
    answers, failures = in_parallel({"a": lambda: True, "b": never.wait}, 0.2)
    assert answers == {"a": True}
    assert isinstance(failures["b"], Unavailable)
    never.set()


def test_a_bug_is_not_taken_for_a_silence() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel({"a": lambda: 1 / 0}, 30)
