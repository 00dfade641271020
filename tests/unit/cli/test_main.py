"""The command line as a user meets it: what is listed, what a mistake looks like, what is handed on."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerweave import __version__
from brokerweave.cli import main
from brokerweave.config import NodeConfig
from brokerweave.config.keys import KEYS
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.runtime import admin_client

Run = Callable[..., tuple[int, str, str]]

NODE = ["node", "--id", "a", "--listen", "127.0.0.1:1883", "--broker", "127.0.0.1:1884"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    # Help is wrapped to the terminal; wide enough, no flag is cut.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")

    def run_main(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(arguments)
        captured = capsys.readouterr()
        code = caught.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return run_main


def runtime_that(monkeypatch: pytest.MonkeyPatch, run_node: Callable[[NodeConfig], int]) -> None:
    """Stand in for the runtime, which would open sockets."""
    module = types.ModuleType("brokerweave.runtime.node")
    module.run = run_node  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "brokerweave.runtime.node", module)


def test_version_says_which_frame_scanner_runs(run: Run) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.strip() in {
        f"brokerweave {__version__} (frame scanner: compiled)",
        f"brokerweave {__version__} (frame scanner: uncompiled)",
    }


def test_help_lists_the_commands_that_exist(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert [
        name for name in ("node", "neighbours", "status", "probe", "demo", "sim") if name not in out
    ] == []


def test_no_command_shows_the_help_and_is_bad_usage(run: Run) -> None:
    code, out, _ = run()
    assert code == 2
    assert "Usage: brokerweave" in out


def test_every_key_of_the_configuration_is_a_flag(run: Run) -> None:
    code, out, _ = run("node", "--help")
    assert code == 0
    assert [key.flag for key in KEYS.values() if f"{key.flag} " not in out] == []
    assert "--neighbour " in out


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["node"], "here or in [node]"),
        (["members"], "Needs [membership] in"),
        (["sim"], "under [links]"),
        (["sim", "membership"], "under [membership]"),
        (["bench", "load"], "[[place]]"),
        (["pipeline", "telemetry"], "a [[tap]] on"),
    ],
)
def test_help_shows_the_names_of_sections_with_their_brackets(
    run: Run, command: list[str], shown: str
) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    words = " ".join(out.replace("│", " ").split())
    assert shown in words


VALIDATOR, WATCHER = "examples.json_validator:JsonValidator", "tests.unit.config.test_plugin_options:Watcher"
LISTENERS = ["--listeners", VALIDATOR, "--listeners", WATCHER]


def test_flags_arrive_in_the_configuration_and_the_nodes_code_is_the_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[NodeConfig] = []

    def fake(config: NodeConfig) -> int:
        seen.append(config)
        return 1

    runtime_that(monkeypatch, fake)
    flags = ["--links-qos", "2", "--limits-drain", "0.5", "--neighbour", "b=h:1", "--neighbour", "c=h:2"]
    code, out, err = run(*NODE, *flags, *LISTENERS, "--set", "watcher.limit=3")
    (config,) = seen
    assert (code, out, err) == (1, "", "")
    assert (config.links.qos, config.limits.drain) == (2, 0.5)
    assert [neighbour.id for neighbour in config.neighbours] == ["b", "c"]
    assert config.node.listeners == tuple(LISTENERS[1::2])
    assert config.options["watcher"] == {"limit": 3}


def test_check_shows_each_value_and_its_source_and_runs_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime_that(monkeypatch, lambda config: pytest.fail("the node was run"))
    file = tmp_path / "a.toml"
    file.write_text('[node]\nid = "a"\nlisten = "127.0.0.1:1883"\nbroker = "127.0.0.1:1884"\n')
    strategy = "brokerweave.cooperation.pf:PublicationFlooding"
    code, out, _ = run("node", str(file), "--check", "--strategy", strategy, "--limits-drain", "2")
    rows = {words[0]: words[1:] for words in map(str.split, out.splitlines()) if len(words) == 3}
    assert code == 0
    assert rows["node.id"][0] == "a"
    assert rows["limits.drain"] == ["2", "--limits-drain"]
    assert rows["links.qos"] == ["1", "default"]
    assert "a.toml" in out


def test_a_node_of_a_file_alone_is_run_as_with_flags(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[NodeConfig] = []

    def keep(config: NodeConfig) -> int:
        found.append(config)
        return 7

    runtime_that(monkeypatch, keep)
    file = tmp_path / "a.toml"
    file.write_text('[node]\nid = "a"\nlisten = "127.0.0.1:1883"\nbroker = "127.0.0.1:1884"\n')
    assert run("node", str(file))[0] == 7
    assert run("node", "--set", "mesh.copies=2", str(file))[0] == 7
    assert found[0] == found[1]
    missing = str(tmp_path / "b.toml")
    assert run("node", missing) == run("node", missing, "--check")


def test_a_node_of_a_file_alone_does_without_the_parser() -> None:
    script = (
        "import sys; from brokerweave.cli.main import main\n"
        "try: main(['node', '/nowhere/a.toml'])\n"
        "except SystemExit as end: print(end.code, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2", "False"]


def test_check_says_what_a_mesh_stands_for(run: Run) -> None:
    code, out, _ = run(*NODE, "--strategy", "mesh", "--check")
    assert code == 0
    assert "delivery cluster, subscribe barrier, cycles none" in out
    assert "stands for" not in run(*NODE, "--strategy", "sf", "--check")[1]


def test_check_knows_whether_the_strategy_exists(run: Run) -> None:
    code, _, err = run(*NODE, "--strategy", "nonsense", "--check")
    assert code == 2
    assert "nonsense" in err


def test_check_reads_the_access_list(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text("topic a/#\ntopik b\n")
    code, _, err = run(*NODE, "--acl-file", str(file), "--check")
    assert code == 2
    assert [word for word in (str(file), "line 2", "topik") if word not in err] == []
    file.write_text("topic a/#\n")
    assert run(*NODE, "--acl-file", str(file), "--check")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["node"], ["no 'id'", "--id"]),
        (["node", "absent.toml"], ["cannot read absent.toml"]),
        (["node", "--idd", "a"], ["--idd", "brokerweave node --help"]),
        ([*NODE, "--links-qos", "x"], ["--links-qos"]),
        ([*NODE, "--links-qos", "3"], ["--links-qos", "from 0 to 2"]),
        (["nodee"], ["nodee", "brokerweave --help"]),
        (["neighbours"], ["brokerweave neighbours --help"]),
        (["neighbours", "add", "b"], ["ID=HOST:PORT"]),
        (["status", "--id", "a", "--socket", "s"], ["only one of"]),
        (["probe", "nowhere"], ["HOST:PORT"]),
        (["probe", "h:1", "--password-file", "p"], ["--username"]),
        (["probe", "h:1", "--username", "u", "--password-file", "absent"], ["cannot read absent"]),
    ],
)
def test_a_mistake_is_one_line_and_code_2(run: Run, arguments: list[str], words: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("brokerweave: ")
    assert err.count("\n") == 1
    assert [word for word in words if word not in err] == []


@pytest.mark.parametrize("error", [BrokerweaveError("no such neighbour"), Unavailable("no such neighbour")])
def test_a_failure_is_one_line_and_code_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BrokerweaveError
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(admin_client, "ask", fail)
    assert run("neighbours", "remove", "b", "--id", "a") == (1, "", "brokerweave: no such neighbour\n")


def test_a_bug_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime_that(monkeypatch, lambda config: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main.main(NODE)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, BrokenPipeError])
def test_being_interrupted_or_cut_off_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stop: type[BaseException]
) -> None:
    def fake(config: NodeConfig) -> int:
        raise stop

    runtime_that(monkeypatch, fake)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) as caught:
        main.main(NODE)
    assert caught.value.code in (1, 130)
    assert capsys.readouterr().err == ""


def test_the_command_line_loads_neither_the_runtime_nor_asyncio_before_it_must() -> None:
    script = (
        "import sys, brokerweave.cli.main\n"
        "print(*sorted({'asyncio', 'uvloop', 'rich.table', 'brokerweave.runtime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_what_the_system_refuses_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(config: NodeConfig) -> int:
        raise PermissionError(13, "Permission denied", "some/file")

    runtime_that(monkeypatch, refused)
    assert run(*NODE) == (1, "", "brokerweave: some/file: Permission denied\n")
