"""Configuration: what is accepted, what wins, and what a user reads after a mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerweave.config import (
    Address,
    LimitsSection,
    LinksSection,
    TapSection,
    claim_admin_folder,
    default_admin_socket,
    explain,
    load,
    reload,
)
from brokerweave.config.keys import KEYS
from brokerweave.config.reference import reference
from brokerweave.config.socket import running_sockets
from brokerweave.config.values import BadValue, UnixSocket, parse_broker
from brokerweave.errors import ConfigError

NODE = '[node]\nid = "a"\nlisten = "127.0.0.1:1883"\nbroker = "127.0.0.1:1884"\n'
FLAGS = {"node.id": "a", "node.listen": "127.0.0.1:1883", "node.broker": "127.0.0.1:1884"}


def write(folder: Path, text: str) -> Path:
    path = folder / "a.toml"
    path.write_text(text)
    return path


def error_of(path: Path | None, flags: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, flags)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_three_keys_are_enough_and_the_rest_have_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, NODE))
    assert config.node.id == "a"
    assert config.node.broker == Address("127.0.0.1", 1884)
    assert config.node.strategy == "sf"
    assert (config.limits, config.links, config.neighbours) == (LimitsSection(), LinksSection(), ())


def test_flags_alone_make_the_same_configuration_as_a_file(tmp_path: Path) -> None:
    file = NODE + '[links]\nqos = 0\n[[neighbour]]\nid = "b"\naddress = "[::1]:7001"\n'
    flags = {**FLAGS, "links.qos": 0, "neighbour": ["b=[::1]:7001"]}
    assert load(write(tmp_path, file)) == load(None, flags)


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = write(tmp_path, NODE + "[limits]\ndrain = 1\nmax_connections = 7\n")
    config = load(path, {"limits.drain": 2.5, "node.strategy": None})
    rows = {key: (value, source) for key, value, source in explain(config)}
    assert rows["limits.drain"] == ("2.5", "--limits-drain")
    assert rows["limits.max_connections"] == ("7", str(path))
    assert rows["node.strategy"] == ("sf", "default")
    assert rows.keys() == KEYS.keys()


def test_a_neighbour_flag_adds_to_the_file_and_replaces_an_equal_id(tmp_path: Path) -> None:
    path = write(tmp_path, NODE + '[[neighbour]]\nid = "b"\naddress = "h:1"\n')
    config = load(path, {"neighbour": ["b=h:2", "c=h:3"]})
    assert [str(neighbour) for neighbour in config.neighbours] == ["b=h:2", "c=h:3"]
    sources = {key: source for key, _, source in explain(config)}
    assert (sources["neighbour.b"], sources["neighbour.c"]) == ("--neighbour", "--neighbour")


def test_taps_come_from_the_file_and_from_flags(tmp_path: Path) -> None:
    text = '[[tap]]\ntopics = ["s/#"]\nexclude = ["s/x"]\nsample = 0.5\n[[tap]]\ntopics = ["a", "b"]\n'
    config = load(write(tmp_path, NODE + text), {"tap": ["c/+"]})
    assert config.taps == (TapSection(("s/#",), ("s/x",), 0.5), TapSection(("a", "b")), TapSection(("c/+",)))
    shown = {key: (value, source) for key, value, source in explain(config)}
    assert shown["tap.1"][0] == "s/# without s/x, 0.5 of them"
    assert shown["tap.3"] == ("c/+", "--tap")
    assert "--tap" in error_of(None, {**FLAGS, "tap": ["a/#/b"]})


def test_a_relative_path_belongs_to_the_file_that_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, NODE + 'data_dir = "data"\n')
    assert load(path).node.data_dir == tmp_path / "data"
    assert load(path, {"node.data_dir": "data"}).node.data_dir == Path("data")


def test_reload_sees_the_changed_file_and_keeps_the_flags(tmp_path: Path) -> None:
    path = write(tmp_path, NODE)
    config = load(path, {"links.qos": 2})
    write(tmp_path, NODE + "[limits]\nmax_connections = 3\n")
    again = reload(config)
    assert (again.limits.max_connections, again.links.qos) == (3, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[node]\nbrokr = "h:1"\n', ["unknown key 'brokr' in [node]", "a.toml", "did you mean 'broker'?"]),
        (NODE + "[limts]\ndrain = 1\n", ["unknown section [limts]", "did you mean [limits]?"]),
        (
            NODE + "[storage]\n",
            [
                "unknown section [storage]",
                "known are node, limits, links, retained, acl, edge_log, flight, kafka, telemetry,",
                "telemetry, membership, monitoring, direct, guided, mesh, pf, scribe, sf, tap and neighbour",
            ],
        ),
        (NODE + '[flight]\nlisten = "127.0.0.1:0"\n', ["'listen' in [flight]", "[[tap]]"]),
        (NODE + '[kafka]\nservers = "k:1"\n', ["'servers' in [kafka]", 'for example ["127.0.0.1:9092"]']),
        (NODE + '[kafka]\nservers = ["k"]\n', ["'servers' in [kafka]", "HOST:PORT"]),
        (NODE + '[kafka]\nservers = ["k:1"]\n', ["'servers' in [kafka] needs a [[tap]]"]),
        (NODE + '[kafka]\ntopic = "a/{b}"\n', ["'topic' in [kafka]", "mqtt.{node}.{1}"]),
        (NODE + '[telemetry]\ntopic = "$SYS/{node}"\n', ["'topic' in [telemetry]", "without wildcards"]),
        (NODE + '[membership]\njoin = ["h:1"]\n', ["'join' in [membership] needs 'bind'"]),
        (NODE + '[membership]\nbind = "127.0.0.1:7946"\n', ["'bind' in [membership] needs a 'key_file'"]),
        (
            NODE + '[membership]\nbind = "0.0.0.0:7946"\nkey_file = "a.toml"\n',
            ["'bind' in [membership] is 0.0.0.0:7946", "'advertise'"],
        ),
        (NODE + '[monitoring]\nlisten = "127.0.0.1:7910"\n', ["'listen' in [monitoring] needs a 'key_file'"]),
        (NODE + '[membership]\npreset = "moon"\n', ["'preset' in [membership]", '"lan", "wan", "local"']),
        (NODE + "[edgelog]\n", ["unknown section [edgelog]", "did you mean [edge_log]?"]),
        (NODE + '[edge_log]\nfsync = "often"\n', ["'fsync' in [edge_log]", '"always", "interval", "never"']),
        (NODE + '[tap]\ntopics = ["a"]\n', ["'tap'", "write [[tap]]"]),
        (NODE + "[[taps]]\n", ["unknown section [taps]", "did you mean [[tap]]?"]),
        (NODE + "[[tap]]\nsample = 0.5\n", ["[[tap]]", "no 'topics'"]),
        (NODE + "[[tap]]\ntopics = []\n", ["[[tap]]", "records nothing"]),
        (NODE + '[[tap]]\ntopics = "a"\n', ["'topics' in [[tap]]", "a list of topic filters", "not 'a'"]),
        (NODE + '[[tap]]\ntopics = ["a#"]\n', ["'topics' in [[tap]]", "a list of topic filters"]),
        (NODE + '[[tap]]\ntopics = ["$SYS/#"]\n', ["'topics' in [[tap]]", "never recorded"]),
        (NODE + '[[tap]]\ntopics = ["a"]\nsample = 0\n', ["'sample' in [[tap]]", "above 0"]),
        (NODE + '[[tap]]\ntopics = ["a"]\nsampling = 1\n', ["'sampling'", "did you mean 'sample'?"]),
        (NODE + "[[neighbor]]\n", ["unknown section [neighbor]", "did you mean [[neighbour]]?"]),
        ("id = 'a'\n", ["'id'", "outside any section", "[node]"]),
        ("brokr = 'a'\n", ["unknown key 'brokr'", "did you mean 'broker'?"]),
        ("links = 3\n", ["'links'", "write [links]"]),
        (NODE + "[links]\nqos = 3\n", ["'qos' in [links]", "from 0 to 2", "not 3"]),
        (NODE + "[links]\nqos = true\n", ["'qos' in [links]", "not true"]),
        (NODE + "[links]\nqos = 1.0\n", ["'qos' in [links]", "whole number"]),
        (NODE + '[links]\nqos = "1"\n', ["'qos' in [links]", "not '1'"]),
        (NODE + "[limits]\ndrain = nan\n", ["'drain' in [limits]", "seconds"]),
        (NODE + "[limits]\ndrain = inf\n", ["'drain' in [limits]", "seconds"]),
        (NODE + "[limits]\ndrain = false\n", ["'drain' in [limits]", "not false"]),
        (NODE + '[links]\norder = "random"\n', ["'order'", '"topic", "round-robin"']),
        (NODE + "[links]\nreconnect_min = 20\n", ["'reconnect_min'", "'reconnect_max'"]),
        (NODE + 'listeners = "json"\n', ["'listeners'", "a list of names"]),
        (NODE + 'listeners = ["x", "x"]\n', ["'listeners'", "repeated"]),
        (NODE + 'data_dir = ""\n', ["'data_dir'", "a path"]),
        (NODE + "proxy_protocol = 1\n", ["'proxy_protocol'", "true or false", "not 1"]),
        (NODE + '[acl]\nfile = "absent"\n', ["'file'", "absent", "no file that can be read"]),
        (NODE + 'key_file = "absent"\n', ["'key_file'", "absent", "no file that can be read"]),
        (NODE + 'broker_password_file = "a.toml"\n', ["'broker_password_file'", "'broker_username'"]),
        (NODE + '[links]\ntls_key = "a.toml"\n', ["'tls_certificate'", "'tls_key'"]),
        (NODE + '[neighbour]\nid = "b"\n', ["'neighbour'", "[[neighbour]]"]),
        (NODE + '[[neighbour]]\nid = "b"\n', ["[[neighbour]]", "no 'address'"]),
        (NODE + '[[neighbour]]\nid = "b"\nadress = "h:1"\n', ["'adress'", "did you mean 'address'?"]),
        (NODE + '[[neighbour]]\nid = "a"\naddress = "h:1"\n', ["neighbour 'a'", "own id"]),
        (NODE + '[[neighbour]]\nid = "b"\naddress = "h:1"\n' * 2, ["neighbour 'b'", "twice"]),
        (NODE + "x", ["a.toml is not TOML", "at end of document"]),
        ('[node]\nid = "a"\n', ["no 'listen'", 'write listen = "127.0.0.1:1883" under [node]']),
        (NODE.replace("1884", "1883"), ["'listen' and 'broker'", "127.0.0.1:1883"]),
        (NODE + 'link_listen = "127.0.0.1:1883"\n', ["'listen' and 'link_listen'"]),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_file_key_and_remedy(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = write(tmp_path, text)
    message = error_of(path)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, ["no 'id'", "--id a"]),
        ({**FLAGS, "node.listen": "nowhere"}, ["--listen should be HOST:PORT"]),
        ({**FLAGS, "links.window": 1}, ["--links-window should be"]),
        ({**FLAGS, "neighbour": ["b"]}, ["--neighbour should be ID=HOST:PORT"]),
        ({**FLAGS, "neighbour": ["b=h:1", "b=h:2"]}, ["--neighbour b", "twice"]),
        ({**FLAGS, "node.key_file": "absent"}, ["'key_file' (--key-file)"]),
    ],
)
def test_a_mistake_in_a_flag_names_the_flag(flags: dict[str, object], words: list[str]) -> None:
    message = error_of(None, flags)
    assert [word for word in words if word not in message] == []


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path: Path) -> None:
    assert "cannot read" in error_of(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "is not TOML" in error_of(tmp_path / "binary.toml")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 65, "a\n"])
def test_an_id_that_could_not_name_a_folder_is_refused(name: str) -> None:
    assert "--id should be" in error_of(None, {**FLAGS, "node.id": name})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", Address("127.0.0.1", 1883)),
        ("[::1]:1", Address("::1", 1)),
        ("[fe80::1%eth0]:65535", Address("fe80::1%eth0", 65535)),
        ("broker.local:1883", Address("broker.local", 1883)),
    ],
)
def test_an_address_reads_back_what_it_shows(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "h:",
        ":1",
        "h:0",
        "h:65536",
        "h:x",
        "::1:1883",
        "[::1]",
        "[h]:1",
        "h:1 ",
        "tcp://h:1",
        "h:\u0661",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="HOST:PORT"):
        Address.parse(text)


def test_a_broker_may_be_a_socket_in_the_file_system() -> None:
    broker = load(None, {**FLAGS, "node.broker": "unix:/run/mosquitto/broker.sock"}).node.broker
    assert broker == UnixSocket("/run/mosquitto/broker.sock")
    assert parse_broker(str(broker)) == broker


@pytest.mark.parametrize("text", ["unix:", "unix:here", "unix:/a\nb", "unix:/" + 107 * "a"])
def test_what_is_no_socket_is_refused_in_one_line(text: str) -> None:
    said = error_of(None, {**FLAGS, "node.broker": text})
    assert "--broker should be unix: and a" in said
    assert "\n" not in said


def test_clients_come_by_tcp_alone() -> None:
    assert "--listen should be HOST:PORT" in error_of(None, {**FLAGS, "node.listen": "unix:/run/node.sock"})


def test_port_zero_may_be_listened_on_but_not_called() -> None:
    assert load(None, {**FLAGS, "node.listen": "127.0.0.1:0"}).node.listen.port == 0
    assert "--broker" in error_of(None, {**FLAGS, "node.broker": "127.0.0.1:0"})


toml_values = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.none())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), toml_values))
def test_any_value_for_any_key_is_taken_or_refused_in_one_line(flags: dict[str, object]) -> None:
    try:
        config = load(None, {**FLAGS, **flags})
    except ConfigError as error:
        lines = [str(error)]
    else:
        lines = [f"{key}={value}" for key, value, _ in explain(config)]
        assert len(lines) == len(KEYS)
    assert [line for line in lines if "\n" in line] == []


def test_every_default_is_itself_an_acceptable_value() -> None:
    for key in KEYS.values():
        if key.default is not None:
            assert key.about.kind.read(key.default) == key.default, key.dotted


def test_the_reference_page_is_what_the_keys_say() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert page.read_text() == reference(), "run: make docs"


def test_the_admin_socket_is_in_the_users_runtime_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_admin_socket("a") == tmp_path / "brokerweave" / "a.sock"
    assert load(None, FLAGS).admin_socket == tmp_path / "brokerweave" / "a.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert default_admin_socket("a") == tmp_path / f"brokerweave-{os.getuid()}" / "a.sock"


def test_the_admin_folder_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert running_sockets() == ()
    folder = claim_admin_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert claim_admin_folder() == folder
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="other users"):
        claim_admin_folder()


def test_an_admin_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    claim_admin_folder()
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    with pytest.raises(ConfigError, match="another user"):
        running_sockets()


def test_a_link_in_place_of_the_admin_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "brokerweave").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not a folder"):
        claim_admin_folder()


def test_a_socket_path_longer_than_the_kernel_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerweave.config.socket.admin_folder", lambda: Path("/x" * 60))
    with pytest.raises(ConfigError, match="too long for a socket"):
        default_admin_socket("a")
