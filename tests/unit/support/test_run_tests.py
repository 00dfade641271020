"""The second try: who gets one, who does not, and what is printed. The tests it tries are made up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.outcomes import Failure, Outcomes, plain
from tests.support.run_tests import busy_loops, closing, held, worth_a_second_try

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
QUICK_START = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p xdist.plugin",
}
"""Without the plugins that these tests do not need, pytest starts four times as fast."""
CONFTEST = """
import pathlib, pytest
from tests.support.verdicts import BrokenPromise

@pytest.fixture
def first():
    "Whether this is the first time."
    file = pathlib.Path("tried")
    tried = file.exists()
    file.touch()
    return not tried

@pytest.fixture
def fragile(first):
    yield
    assert not first, "a broken teardown"
"""
STEADY = "import pytest\ndef test_steady(): pass\n"
ONCE = "@pytest.mark.real\ndef test_once(first): print('what it saw'); assert not first, 'too slow'\n"


def run(folder: Path, tests: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, all that was said, and its last line."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = real: real processes\n")
    (folder / "test_made_up.py").write_text(STEADY + tests)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.run_tests", *arguments],
        cwd=folder,
        env=os.environ | QUICK_START,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    return done.returncode, said, said.strip().splitlines()[-1]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_with_real_processes_that_holds_alone_is_unsteady_and_the_run_passes(
    tmp_path: Path, workers: str
) -> None:
    code, said, last = run(tmp_path, ONCE, "--workers", workers)
    assert code == 0, said
    assert "1 passed, 1 unsteady in" in last
    assert "UNSTEADY test_made_up.py::test_once" in said
    assert "too slow" in said
    assert "what it saw" in said.partition("=== first, beside others ===")[2]


def test_one_that_fails_twice_has_failed(tmp_path: Path) -> None:
    twice = "@pytest.mark.real\ndef test_twice(): assert False, 'always'\n"
    code, said, last = run(tmp_path, twice)
    assert code == 1
    assert "1 failed, 1 passed in" in last
    assert said.count("[call]") == 2


def test_a_teardown_that_fails_once_is_unsteady_too(tmp_path: Path) -> None:
    code, said, last = run(tmp_path, "@pytest.mark.real\ndef test_fragile(fragile): pass\n")
    assert code == 0, said
    assert "1 passed, 1 unsteady in" in last


DETERMINISTIC = "def test_deterministic(first): assert not first\n"
LOST = """
from tests.support.verdicts import BrokenPromise, once_each
@pytest.mark.real
def test_lost(first): once_each([1], [1, 2] if first else [1])
"""
DOUBLED = """
from tests.support.verdicts import BrokenPromise
@pytest.mark.real
def test_doubled(first):
    if first:
        raise ExceptionGroup("several", [OSError(), BrokenPromise("doubled")])
"""


@pytest.mark.parametrize(
    ("tests", "workers"),
    [(DETERMINISTIC, "0"), (LOST, "0"), (LOST, "2"), (DOUBLED, "0")],
    ids=["deterministic", "lost", "lost in a worker", "doubled, in a group"],
)
def test_what_is_deterministic_or_broke_a_promise_gets_no_second_try(
    tmp_path: Path, tests: str, workers: str
) -> None:
    code, said, last = run(tmp_path, tests, "--workers", workers)
    assert code == 1, said
    assert "1 failed, 1 passed" in last
    assert "once more" not in said


def test_a_run_without_failures_is_pytests_own(tmp_path: Path) -> None:
    code, said, last = run(tmp_path, "")
    assert code == 0
    assert "1 passed in" in last
    assert said.count("test session starts") == 1


def test_a_run_that_cannot_collect_its_tests_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "import nothing_of_that_name\n")[0] == 2


def failure(test: str, real: bool = True, final: bool = False) -> Failure:
    return Failure(test, real, final, "said")


def test_at_most_two_get_a_second_try_and_none_where_the_run_has_failed_anyhow() -> None:
    a, b, c = failure("a"), failure("b"), failure("c")
    assert worth_a_second_try(Outcomes(failures=[a, b])) == [a, b]
    assert worth_a_second_try(Outcomes(failures=[a, b, c])) == []
    assert worth_a_second_try(Outcomes(failures=[a, failure("d", real=False)])) == []
    assert worth_a_second_try(Outcomes(failures=[a, failure("d", final=True)])) == []


def test_one_that_is_skipped_or_not_found_alone_has_not_held() -> None:
    assert held(Outcomes(Counter(passed=1)))
    assert not held(Outcomes(Counter(skipped=1)))
    assert not held(Outcomes())


def test_the_last_line_counts_every_test_once() -> None:
    first = Outcomes(Counter(passed=5, failed=2, skipped=1))
    line = closing(first, [failure("x")], 61.0)
    assert line == "UNSTEADY x\n===== 1 failed, 5 passed, 1 unsteady, 1 skipped in 61.00s ====="


def test_a_group_is_cut_from_a_tests_id_and_an_at_sign_of_its_own_stays() -> None:
    assert plain("t.py::test[a@b]@t.py") == "t.py::test[a@b]"
    assert plain("t.py::test@spark") == "t.py::test"
    assert plain("t.py::test[a@b]") == "t.py::test[a@b]"


def test_busy_loops_are_there_meanwhile_and_gone_afterwards() -> None:
    with busy_loops(2) as running:
        for pid in running:
            os.kill(pid, 0)
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
