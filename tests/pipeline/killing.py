"""Runs a scenario of file changes once for every step it has, and kills it there; then once more, to recover.

A scenario is `module:function`; the function takes a folder. All runs are forks of one process that has
imported everything and has started no thread, so that hundreds of kills take seconds.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from brokerweave.pipeline.lake import durable


def killed_at_every_step(scenario: str, folder: Path) -> list[tuple[str, Path]]:
    """Each step's name, and the folder that is left when the scenario dies there."""
    _run("kill", scenario, folder)
    lines = (folder / "steps").read_text().splitlines()
    assert lines, "the scenario has no step to be killed at"
    return [(name, folder / str(number)) for number, name in enumerate(lines)]


def recovered(scenario: str, folder: Path) -> None:
    """Runs the scenario to its end, in each folder that a kill has left."""
    _run("recover", scenario, folder)


def _run(mode: str, scenario: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.killing", mode, scenario, str(folder)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _forked(act: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill(scenario: Callable[[Path], None], folder: Path) -> None:
    noted = folder / "steps"

    def count() -> None:
        with open(noted, "w") as file:
            durable.at_step = lambda name: print(name, file=file, flush=True)
            scenario(folder / "whole")

    assert _forked(count) == 0
    for number in range(len(noted.read_text().splitlines())):

        def die(number: int = number) -> None:
            left = iter(range(number))

            def reached(_: str) -> None:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            durable.at_step = reached
            scenario(folder / str(number))

        assert _forked(die) == -signal.SIGKILL


def _recover(scenario: Callable[[Path], None], folder: Path) -> None:
    for number in range(len((folder / "steps").read_text().splitlines())):
        assert _forked(lambda number=number: scenario(folder / str(number))) == 0  # type: ignore[misc]


if __name__ == "__main__":
    mode, scenario, folder = sys.argv[1:]
    module, _, function = scenario.partition(":")
    run = getattr(importlib.import_module(module), function)
    {"kill": _kill, "recover": _recover}[mode](run, Path(folder))
