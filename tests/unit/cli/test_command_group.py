"""Commands that run something or ask it: what their first word is taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.cli.main import main


@pytest.mark.parametrize(
    ("group", "word", "meant"), [("gateway", "statsu", "status"), ("controller", "drian", "drain")]
)
def test_a_command_that_is_mistyped_is_not_taken_for_a_file(
    group: str, word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([group, word])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"brokerweave: no command and no file is called {word!r}; did you mean {meant!r}?\n"
    )


def test_a_file_may_have_a_name_like_a_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("moves.toml").write_text("[gatewya]\n")
    with pytest.raises(SystemExit):
        main(["gateway", "moves.toml"])
    assert "unknown section [gatewya] in moves.toml" in capsys.readouterr().err
