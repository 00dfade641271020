"""A run's folder is begun once, and gone on with only by the same run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.bench.starting import alone, open_run, versions
from brokerweave.errors import ConfigError, Unavailable


def test_a_new_folder_says_what_is_run_and_where(tmp_path: Path) -> None:
    run = open_run("limit", {"name": "x", "counts": (1, 2)}, tmp_path / "a").run()
    assert run.kind == "limit"
    assert run.scenario == {"name": "x", "counts": [1, 2]}
    assert run.machine["cores"] >= 1
    assert run.versions["frame scanner"] in ("compiled", "uncompiled")
    assert run.commit


def test_the_same_run_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    first = open_run("limit", {"counts": (1, 2)}, tmp_path).run()
    assert open_run("limit", {"counts": (1, 2)}, tmp_path).run() == first
    with pytest.raises(ConfigError, match="another run"):
        open_run("limit", {"counts": (1, 3)}, tmp_path)
    with pytest.raises(ConfigError, match="another run"):
        open_run("load", {"counts": (1, 2)}, tmp_path)


def test_a_run_that_goes_on_with_other_code_names_both_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for commit in ("abc", "abc", "def", "abc"):
        monkeypatch.setattr("brokerweave.bench.starting.commit", lambda commit=commit: commit)
        folder = open_run("limit", {}, tmp_path)
    assert folder.run().commit == "abc, def"


def test_the_version_of_every_broker_that_may_be_measured_is_known() -> None:
    installed = {name for name, lacks in lab.available().items() if lacks is None}
    assert installed <= {name for name, version in versions().items() if version}


def test_a_folder_that_cannot_be_made_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigError, match="give another folder with --to"):
            open_run("limit", {}, path)


@pytest.fixture
def own_signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("own_signals")
def test_a_second_signal_does_not_disturb_the_end_that_the_first_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    tidied: list[bool] = []

    def interrupted() -> None:
        with alone(), contextlib.ExitStack() as stack:
            stack.callback(tidied.append, True)
            stack.callback(signal.raise_signal, signal.SIGINT)
            stack.callback(signal.raise_signal, signal.SIGTERM)
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as ended:
        interrupted()
    assert ended.value.code == code
    assert tidied


def test_a_lock_of_somebody_else_is_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "brokerweave-bench.lock").mkdir()  # as little to be opened as another user's, also by root
    with pytest.raises(Unavailable, match=r"bench\.lock.*remove it, or set TMPDIR"), alone():
        pass
