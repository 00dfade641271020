"""A pytest plugin: writes what became of each test to a file, for `run_tests`.

Owns the file that `--outcomes` names: one line of JSON for each test that failed, and one with the counts.
Invariants: a test that failed in any of its phases has failed; a broken promise in any of them is final. Must
not know: what is done about it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.support.verdicts import BrokenPromise

REAL = "real"
"""The marker of tests that use real processes."""
_FINAL = "final"


@dataclass
class Failure:
    test: str
    real: bool = False
    final: bool = False
    output: str = ""

    @property
    def may_try_again(self) -> bool:
        return self.real and not self.final


@dataclass
class Outcomes:
    counts: Counter[str] = field(default_factory=Counter)
    """Tests by what became of them: passed, failed (in any phase), skipped, xfailed."""
    failures: list[Failure] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Outcomes:
        if not file.exists():  # pytest did not get so far
            return cls()
        counts, *failures = [json.loads(line) for line in file.read_text().splitlines()]
        return cls(Counter(counts), [Failure(**each) for each in failures])

    def write(self, file: Path) -> None:
        rows = [dict(self.counts), *map(asdict, self.failures)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def plain(nodeid: str) -> str:
    """A test's id as pytest takes it: xdist puts the group behind it, after an `@`."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group else nodeid


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", help="write what became of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--outcomes")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(config, Path(file)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In the process that runs the test; what is put down here travels with the report."""
    report = yield
    if call.excinfo is not None and any(isinstance(each, BrokenPromise) for each in _all(call.excinfo.value)):
        report.user_properties.append((_FINAL, True))
    return report


def _all(error: BaseException) -> Iterator[BaseException]:
    """An error, what it has in it and what led to it."""
    yield error
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inside, error.__cause__, error.__context__):
        if each is not None:
            yield from _all(each)


class Writer:
    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config = config
        self._file = file
        self._words: dict[str, str] = {}
        self._failed: dict[str, Failure] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = plain(report.nodeid)
        if report.failed:
            self._words[test] = "failed"
            failure = self._failed.setdefault(test, Failure(test))
            failure.real |= REAL in report.keywords
            failure.final |= (_FINAL, True) in map(tuple, report.user_properties)
            sections = [f"--- {title} ---\n{text}" for title, text in report.sections]
            failure.output += "\n".join([f"[{report.when}]", report.longreprtext, *sections]) + "\n"
        elif word := self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]:
            self._words.setdefault(test, word)

    def pytest_sessionfinish(self) -> None:
        Outcomes(Counter(self._words.values()), list(self._failed.values())).write(self._file)
