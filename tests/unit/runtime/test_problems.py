"""What a node does with errors that nobody caught."""

from __future__ import annotations

import pytest

from brokerweave.runtime.problems import MOST_WARNINGS, Problems


@pytest.fixture
def problems() -> Problems:
    return Problems()


@pytest.mark.parametrize("key", ["transport", "protocol"])
def test_a_connections_odd_end_is_no_internal_error(problems: Problems, key: str) -> None:
    problems.loop_failed({"message": "Fatal error", "exception": OSError(110, "timed out"), key: object()})
    assert (problems.internal_errors, problems.warnings) == (0, [])


def test_an_error_of_the_system_in_a_timer_is_an_internal_error(problems: Problems) -> None:
    problems.loop_failed(
        {"message": "Exception in callback", "exception": OSError(24, "Too many open files")}
    )
    assert problems.internal_errors == 1
    assert "Too many open files" in problems.warnings[0]


def test_no_descriptor_for_a_new_connection_is_a_warning(problems: Problems) -> None:
    error = OSError(24, "Too many open files")
    problems.loop_failed({"message": "socket.accept()", "exception": error, "socket": object()})
    assert (problems.internal_errors, len(problems.warnings)) == (0, 1)


def test_an_internal_error_is_counted_each_time_and_said_once_for_each_kind(problems: Problems) -> None:
    for task in ("telemetry", "telemetry", "a link"):
        problems.task_failed(task, ValueError("odd"))
    assert problems.internal_errors == 3
    assert [warning.partition(" failed")[0] for warning in problems.warnings] == ["telemetry", "a link"]


def test_no_more_warnings_are_kept_than_somebody_reads(problems: Problems) -> None:
    for number in range(2 * MOST_WARNINGS):
        problems.warn(f"warning {number}")
        problems.warn("once more")
    assert len(problems.warnings) == MOST_WARNINGS
    assert problems.warnings[:2] == ["warning 0", "once more"]
