"""Background work that raises what it should not."""

from __future__ import annotations

import asyncio

import pytest

from brokerweave.runtime import tasks
from brokerweave.runtime.tasks import supervise


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each pause would have been."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(tasks.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
    return slept


async def test_work_that_fails_is_reported_and_restarted_after_longer_and_longer_pauses(
    pauses: list[float],
) -> None:
    reports: list[tuple[str, str]] = []

    async def work() -> None:
        if len(reports) < 8:
            raise ValueError(len(reports))

    await supervise("the work", work, lambda name, error: reports.append((name, str(error))))
    assert reports == [("the work", str(n)) for n in range(8)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_work_that_was_cancelled_is_not_restarted(pauses: list[float]) -> None:
    begun = asyncio.Event()
    reports: list[str] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise("the work", work, lambda name, error: reports.append(name)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (reports, pauses) == ([], [])
