"""What a node does with errors that nobody caught."""

from __future__ import annotations

import pytest

from brokerweave.runtime.trouble import MOST_WARNINGS, Trouble


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.mark.parametrize("key", ["transport", "protocol"])
def test_a_connections_odd_end_is_no_internal_error(trouble: Trouble, key: str) -> None:
    trouble.loop_failed({"message": "Fatal error", "exception": OSError(110, "timed out"), key: object()})
    assert (trouble.internal_errors, trouble.warnings) == (0, [])


def test_an_error_of_the_system_in_a_timer_is_an_internal_error(trouble: Trouble) -> None:
    trouble.loop_failed({"message": "Exception in callback", "exception": OSError(24, "Too many open files")})
    assert trouble.internal_errors == 1
    assert "Too many open files" in trouble.warnings[0]


def test_no_descriptor_for_a_new_connection_is_a_warning(trouble: Trouble) -> None:
    error = OSError(24, "Too many open files")
    trouble.loop_failed({"message": "socket.accept()", "exception": error, "socket": object()})
    assert (trouble.internal_errors, len(trouble.warnings)) == (0, 1)


def test_an_internal_error_is_counted_each_time_and_said_once_for_each_kind(trouble: Trouble) -> None:
    for task in ("telemetry", "telemetry", "a link"):
        trouble.task_failed(task, ValueError("odd"))
    assert trouble.internal_errors == 3
    assert [warning.partition(" failed")[0] for warning in trouble.warnings] == ["telemetry", "a link"]


def test_no_more_warnings_are_kept_than_somebody_reads(trouble: Trouble) -> None:
    for number in range(2 * MOST_WARNINGS):
        trouble.warn(f"warning {number}")
        trouble.warn("once more")
    assert len(trouble.warnings) == MOST_WARNINGS
    assert trouble.warnings[:2] == ["warning 0", "once more"]
