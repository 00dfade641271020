"""`brokerweave log` on the files of a log, with no node."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from brokerweave.cli import main
from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.runtime import admin_client
from tests.unit.edgelog.logs import flip, frames, segment_files, write_block

Run = Callable[..., tuple[int, str, str]]
TINY = Policy(fsync="never", max_bytes=1 << 14, min_free=0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(["log", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        assert "Traceback" not in err
        return caught.value.code, out, err

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten rows in several segments."""
    writer = LogWriter(tmp_path / "log", "a", TINY)
    for number in range(9):
        write_block(writer, b"%d" % number * 300)
    writer.append(1_700_000_000_000_000, b"c\x1b[2J", 4, 1, frames(b"\x1b[2Jlast", topic="s/1", qos=1), [0])
    writer.close()
    return tmp_path / "log"


def test_ls_shows_segments_and_how_far_the_log_can_be_read(run: Run, log: Path) -> None:
    code, out, _ = run("ls", "--path", log)
    assert code == 0
    assert "of node a, readable up to 1:10" in out
    assert all(path.name in out for path in segment_files(log))
    listed = json.loads(run("ls", "--path", log, "--json")[1])
    assert [info["name"] for info in listed["segments"]] == [path.name for path in segment_files(log)]


def test_cat_shows_rows_without_doing_what_they_say_to_the_terminal(run: Run, log: Path) -> None:
    code, out, _ = run("cat", "--path", log, "--topic", "s/#")
    assert code == 0
    assert "\x1b" not in out
    assert "1:10" in out
    assert "c\\x1b[2J QoS 1 dup s/1 \\x1b[2Jlast" in out
    (row,) = map(json.loads, run("cat", "--path", log, "--after", "1:9", "--json")[1].splitlines())
    assert (row["sequence"], bytes.fromhex(row["payload"]), row["dup"]) == (10, b"\x1b[2Jlast", True)


def test_a_named_reader_goes_on_where_it_committed(run: Run, log: Path) -> None:
    assert len(run("cat", "--path", log, "--reader", "me", "--commit", "--limit", 4)[1].splitlines()) == 4
    assert Readers(log).all() == {"me": Position(1, 4)}
    assert ["me", "1:4", "6"] in [line.split()[:3] for line in run("readers", "--path", log)[1].splitlines()]
    (before,) = json.loads(run("readers", "--path", log, "--json")[1])["readers"]
    assert before["behind_seconds"] > 0
    assert len(run("cat", "--path", log, "--reader", "me")[1].splitlines()) == 6
    assert len(run("cat", "--path", log, "--reader", "me", "--commit")[1].splitlines()) == 6
    shown = json.loads(run("readers", "--path", log, "--json")[1])
    assert shown == {"readers": [{"reader": "me", "committed": "1:10", "behind": 0, "behind_seconds": 0.0}]}
    assert run("readers", "--path", log, "--forget", "me")[0] == 0
    assert Readers(log).all() == {}


def test_damage_is_one_clear_line_with_its_position_and_a_code(run: Run, log: Path) -> None:
    assert run("verify", "--path", log)[:2] == (
        0,
        f"{len(segment_files(log))} segments, 10 rows, no damage\n",
    )
    flip(segment_files(log)[1], 200)
    code, out, _ = run("verify", "--path", log)
    assert code == 1
    assert f"{segment_files(log)[1].name} is damaged at byte" in out
    assert json.loads(run("verify", "--path", log, "--json")[1])["damage"][0]["epoch"] == 1
    code, out, err = run("cat", "--path", log)
    assert code == 1
    assert err.count("\n") == 1
    assert "is damaged at byte" in err
    code, out, err = run("cat", "--path", log, "--skip")
    assert code == 0
    assert "skipped 1 damaged and 0 trimmed rows" in err
    assert len(out.splitlines()) == 9


def test_trim_takes_what_all_readers_have_or_what_it_is_told(run: Run, log: Path) -> None:
    code, _, err = run("trim", "--path", log)
    assert (code, "--before" in err) == (2, True)
    Readers(log).commit("me", Position(1, 5))
    before = len(segment_files(log))
    assert run("trim", "--path", log)[0] == 0
    assert 0 < len(segment_files(log)) < before
    assert "trimmed" in run("trim", "--path", log, "--before", "1:10")[1]
    assert len(segment_files(log)) == 1  # the newest may hold rows that nobody could read yet
    code, _, err = run("cat", "--path", log, "--after", "1:3")
    assert (code, err.count("\n")) == (1, 1)
    assert "were trimmed" in err
    writer = LogWriter(log, "a", TINY)
    assert writer.last.sequence == 10
    writer.close()


def test_a_running_node_trims_its_own_log(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, object]] = []

    def ask(path: Path, request: Mapping[str, object]) -> dict[str, Any]:
        asked.append(request)
        return {"edge_log": {"path": str(log)}} if request["do"] == "status" else {"trimmed": 7}

    monkeypatch.setattr(admin_client, "ask", ask)
    writer = LogWriter(log, "a", TINY)
    code, out, _ = run("trim", "--before", "1:7", "--socket", "a.sock")
    assert (code, out) == (0, "trimmed 7 rows up to 1:7\n")
    assert asked[-1] == {"do": "trim_log", "before": "1:7"}
    code, _, err = run("trim", "--before", "1:7", "--path", log)
    assert (code, "name the node" in err) == (2, True)
    writer.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ls", "--path", "absent"], "there is no edge log at absent"),
        (["cat", "--path", "LOG", "--after", "12"], "EPOCH:SEQUENCE"),
        (["cat", "--path", "LOG", "--topic", "a#"], "--topic: # must be"),
        (["cat", "--path", "LOG", "--commit"], "--commit needs --reader"),
        (["ls", "--path", "LOG", "--id", "a"], "only one of"),
        (["readers", "--path", "LOG", "--forget", "x"], "there is no reader x"),
        (["ls", "--path", "EMPTY"], "holds no edge log"),
        (["cat", "--path", "EMPTY"], "holds no edge log"),
        (["verify", "--path", "EMPTY"], "holds no edge log"),
        (["readers", "--path", "EMPTY"], "holds no edge log"),
        (["trim", "--path", "EMPTY", "--before", "1:1"], "holds no edge log"),
        (["cat", "--path", "LOG", "--reader", "../x"], "a reader's name"),
        (["cat", "--path", "LOG", "--reader", "../x", "--after", "1:9", "--commit"], "a reader's name"),
        (["readers", "--path", "UNREADABLE"], "readers cannot be read"),
    ],
)
def test_a_mistake_is_one_line(run: Run, log: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(log, tmp_path / "unreadable")
    (tmp_path / "unreadable" / "readers").write_bytes(b"")  # no folder; to root all folders are readable
    named = {name: str(tmp_path / name.lower()) for name in ("LOG", "EMPTY", "UNREADABLE")}
    code, out, err = run(*(named.get(each, each) for each in arguments))
    assert code != 0
    assert words in err
    assert (out, err.count("\n")) == ("", 1)
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("stored", [b"", b"x" * 88])
def test_verify_takes_a_log_that_does_not_say_how_far_it_may_be_read_for_damaged(
    run: Run, log: Path, stored: bytes
) -> None:
    (log / "served").write_bytes(stored)
    code, out, _ = run("verify", "--path", log)
    assert (code, "served is damaged" in out) == (1, True)


def test_a_nodes_file_says_where_its_log_is(run: Run, log: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    node = '[node]\nid = "a"\nlisten = "127.0.0.1:1883"\nbroker = "127.0.0.1:1884"\n'
    file.write_text(f'{node}[edge_log]\npath = "log"\n')
    assert "readable up to 1:10" in run("ls", "--config", file)[1]
