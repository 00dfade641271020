"""The file with settings for Kafka's client."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.errors import ConfigError
from brokerweave.kafka.cluster import Cluster, client_settings


def test_settings_are_key_value_lines_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# secret\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b\n")
    assert client_settings(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    assert client_settings(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [("security.protocol\n", "line 1 of"), ("\ntransactional.id=x\n", "transactional.id in line 2 of")],
)
def test_a_mistake_in_the_file_is_named_by_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        client_settings(file)


def test_a_setting_that_the_client_does_not_know_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key"):
        Cluster("127.0.0.1:1", "name", "lz4", {"no.such.key": "1"})
