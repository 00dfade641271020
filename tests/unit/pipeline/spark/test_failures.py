from __future__ import annotations

import errno

import pytest

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.spark.failures import LONGEST, failure

WRAPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Failed when
Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "source.py", line 128, in latestOffset
    found = self._ask()
brokerweave.pipeline.source.offsets.RowsGone: 7 rows after 1:3 of log ab were trimmed before this query came
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("error", "line", "lasting"),
    [
        (ConfigError("wrong token"), "wrong token", True),
        (Unavailable("silent"), "silent", False),
        (RuntimeError(WRAPPED), "7 rows after 1:3 of log ab were trimmed before this query came", True),
        (RuntimeError("x\nbrokerweave.errors.Unavailable: node is away\n"), "node is away", False),
        (OSError(errno.ENOSPC, "No space left on device", "/lake"), "/lake: No space left on device", False),
        (RuntimeError("a\nTraceback\nValueError: odd\n"), "ValueError: odd", False),
        (RuntimeError("plain"), "RuntimeError: plain", False),
    ],
)
def test_a_failure_is_one_line_and_says_whether_trying_again_helps(
    error: BaseException, line: str, lasting: bool
) -> None:
    told = failure(error)
    assert (told.line, told.lasting) == (line, lasting)


def test_a_machine_that_is_too_slow_is_told_apart() -> None:
    told = failure(RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."))
    assert told.busy
    assert not told.lasting


def test_a_long_failure_is_cut() -> None:
    assert len(failure(ValueError("x" * 10_000)).line) <= LONGEST
