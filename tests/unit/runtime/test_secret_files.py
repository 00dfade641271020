"""Passwords and keys as their files have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.errors import ConfigError
from brokerweave.runtime.secret_files import read_key, read_password, read_token


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"pass word\nrest\n", b"pass word"), (b"no newline", b"no newline"), (b"", b"")],
)
def test_the_first_line_is_the_password(tmp_path: Path, content: bytes, password: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert read_password(file) == password


def test_without_a_file_there_is_neither_password_nor_key() -> None:
    assert read_password(None) is None
    assert read_key(None) is None


def test_a_file_that_cannot_be_read_is_the_configurations_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_password(tmp_path / "missing")


def test_a_key_has_at_least_sixteen_bytes(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"0123456789abcdef\n")
    assert read_key(file) == b"0123456789abcdef"
    file.write_bytes(b"0123456789abcde\n")
    with pytest.raises(ConfigError, match="shorter than 16 bytes"):
        read_key(file)


@pytest.mark.parametrize("content", [b"", b"\n", b"\nsecret\n"])
def test_an_empty_token_lets_nobody_in_and_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="should be a token, and is empty"):
        read_token(file)
