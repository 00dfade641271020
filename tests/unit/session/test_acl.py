"""Mosquitto's access list: its syntax, and which of several lines decides."""

from __future__ import annotations

import pytest

from brokerweave.session.acl import Acl, parse

FILE = """\
# Everybody without a name
topic read public/#
topic write public/inbox

user ann
topic readwrite plant/#
topic deny plant/secret/#
topic write a topic with spaces

user robot 7
topic just/this
topic read read
topic deny

pattern write sensor/%u/+
pattern readwrite client/%c/#
pattern deny client/+/locked
"""
# "topic deny" alone grants a topic that is called so, as in Mosquitto.


@pytest.fixture(scope="module")
def acl() -> Acl:
    return parse(FILE)


@pytest.mark.parametrize(
    ("user", "client", "topic", "write", "read"),
    [
        (None, "c", "public/news", False, True),
        (None, "c", "public/inbox", True, True),
        (None, "c", "plant/1", False, False),
        ("ann", "c", "plant/1", True, True),
        ("ann", "c", "plant", True, True),
        ("ann", "c", "plant/secret", False, False),
        ("ann", "c", "plant/secret/deep", False, False),
        ("ann", "c", "public/news", False, False),  # the first lines are of those without a name only
        ("ann", "c", "a topic with spaces", True, False),
        ("robot 7", "c", "just/this", True, True),
        ("robot 7", "c", "read", False, True),
        ("robot 7", "c", "deny", True, True),
        ("robot", "c", "just/this", False, False),
        ("bob", "c", "sensor/bob/x", True, False),
        ("bob", "c", "sensor/ann/x", False, False),
        (None, "c", "sensor//x", False, False),  # a pattern with %u says nothing about clients without a name
        ("bob", "c", "client/c/x", True, True),
        ("bob", "c", "client/d/x", False, False),
        ("bob", "c", "client/c/locked", False, False),
        ("ann", "#", "client/#/x", False, False),
        ("ann", "+", "client/other/x", False, False),
        ("+", "c", "sensor/ann/x", False, False),
        ("ann", "#", "plant/1", True, True),  # the odd client id matters to patterns only
        ("%c", "c", "sensor/c/x", False, False),  # a name is put in, not read again
    ],
)
def test_the_line_that_decides_is_mosquittos(
    acl: Acl, user: str | None, client: str, topic: str, write: bool, read: bool
) -> None:
    assert (acl.may_write(user, client, topic), acl.may_read(user, client, topic)) == (write, read)


def test_a_denial_goes_before_a_grant_wherever_it_stands() -> None:
    for lines in ("topic a/#\ntopic deny a/b", "topic deny a/b\ntopic a/#", "topic a/b\ntopic deny a/#"):
        assert not parse(lines).may_write(None, "c", "a/b"), lines


def test_a_users_own_grant_stands_against_a_patterns_denial() -> None:
    acl = parse("pattern deny a/#\npattern b\nuser ann\ntopic a/b")
    assert acl.may_write("ann", "c", "a/b")
    assert not acl.may_write("bob", "c", "a/b")
    assert acl.may_write("bob", "c", "b")


def test_a_user_may_have_several_sections() -> None:
    acl = parse("user ann\ntopic a\nuser bob\ntopic b\nuser ann\ntopic c")
    assert [acl.may_write("ann", "x", topic) for topic in "abc"] == [True, False, True]


def test_an_empty_file_denies_everything() -> None:
    assert not parse("# nothing\n\n").may_write(None, "c", "t")


def test_a_client_id_that_only_the_broker_knows_is_granted_nothing_by_it() -> None:
    acl = parse("pattern client/%c\npattern deny open/%c/closed\npattern open/#")
    assert not acl.may_write(None, "", "client/")
    assert acl.may_write(None, "", "open/x")
    assert not acl.may_write(None, "", "open/any/closed")


def test_clients_share_a_principal_until_a_rule_tells_them_apart() -> None:
    assert parse("user ann\ntopic a").principal("ann", "c1") == ("ann", "")
    by_name = parse("pattern a/%u")
    assert by_name.principal("ann", "c1") == by_name.principal("ann", "c2")
    assert by_name.principal("ann", "c+") == ("ann", "c+")  # denied by its odd id
    assert parse("pattern a/%c").principal("ann", "c1") == ("ann", "c1")


def test_lines_end_as_they_do_on_any_system() -> None:
    acl = parse("user ann \r\ntopic  write   a/b \r\n")
    assert acl.may_write("ann", "c", "a/b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic a\nusers ann", "line 2: should begin with user, topic, pattern or #; not 'users'"),
        ("\n\nuser", "line 3: 'user' needs a name: write user NAME"),
        ("topic", "line 1: 'topic' needs a topic filter: write topic read some/topic/#"),
        ("pattern ", "line 1: 'pattern' needs a topic filter: write pattern read some/topic/#"),
        ("topic wirte a", "line 1: should say read, write, readwrite or deny before"),
        ("topic write a/#/b", "line 1: # must be"),
        ("pattern write a+", "line 1: [+] must be"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)
