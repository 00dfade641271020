"""The tables of a mesh: who is where, who wants what, and what a client that moved is still owed."""

from __future__ import annotations

from brokerweave.cooperation.clients import ClientTable
from brokerweave.plugin import RosterEvents


class Moves(RosterEvents):
    """The moves of clients that a table tells of from now on."""

    def __init__(self, table: ClientTable) -> None:
        self.seen: list[tuple[str, str, str]] = []
        table.events = self

    def moved(self, client: str, before: str, node: str) -> None:
        self.seen.append((client, before, node))


def test_a_node_wants_what_its_clients_want_at_the_highest_qos() -> None:
    table = ClientTable()
    table.put("a", "one", 1, {"t/#": 0})
    table.put("a", "two", 2, {"t/+": 2})
    assert table.nodes_wanting("t/1") == {"a": 2}
    table.drop("a", "two")
    assert table.nodes_wanting("t/1") == {"a": 0}
    table.drop("a", "one")
    assert table.nodes_wanting("t/1") == {}


def test_a_digest_does_not_depend_on_the_order_of_what_was_said() -> None:
    one, other = ClientTable(), ClientTable()
    one.put("a", "x", 1, {"t": 1})
    one.put("a", "x", 1, {"u": 0})
    one.put("a", "y", 2, {"t": 2})
    one.drop("a", "y")
    other.put("a", "x", 1, {"u": 0, "t": 1})
    assert one.digest("a") == other.digest("a") != 0
    one.drop("a", "x")
    assert one.digest("a") == 0


def test_of_two_nodes_that_name_a_client_the_later_one_has_it() -> None:
    table = ClientTable()
    moves = Moves(table)
    table.put("a", "c", 5, {"t": 1})
    table.put("b", "c", 3, {"t": 1})
    assert (table.home("c"), moves.seen) == ("a", [])
    table.put("b", "c", 7, {"t": 1})
    assert (table.home("c"), moves.seen) == ("b", [("c", "a", "b")])
    assert table.nodes_wanting("t") == {"b": 1}


def test_what_a_client_wanted_is_owed_to_it_until_it_says_what_it_wants_where_it_is() -> None:
    table = ClientTable()
    table.put("a", "c", 1, {"t": 1, "u": 2})
    table.put("b", "c", 2, {})
    assert table.nodes_wanting("t") == {"a": 1}
    assert table.clients_wanting("a", "t") == {"c": 1}
    table.put("b", "c", 2, {"t": 1})
    assert table.nodes_wanting("t") == {"b": 1}
    assert table.nodes_wanting("u") == {"a": 2}
    table.forget_former("a", "c")
    assert table.nodes_wanting("u") == {}


def test_where_a_client_was_it_is_matched_for_runs_that_come_late() -> None:
    table = ClientTable()
    table.put("a", "c", 1, {"t": 1})
    table.put("b", "c", 2, {"t": 1})
    table.drop("a", "c")
    assert table.clients_wanting("a", "t") == {"c": 1}
    table.forget_former("a", "c")
    assert table.clients_wanting("a", "t") == {}
    assert table.clients_wanting("b", "t") == {"c": 1}


def test_nobody_keeps_messages_for_shared_subscriptions_or_clients_without_a_name() -> None:
    table = ClientTable()
    table.put("a", "c", 1, {"$share/g/t": 1})
    table.put("a", "\0007", 1, {"t": 1})
    assert table.nodes_wanting("t") == {"a": 1}
    assert table.clients_wanting("a", "t") == {}


def test_a_client_that_its_restarted_node_forgot_moves_from_there_when_it_turns_up() -> None:
    table = ClientTable()
    moves = Moves(table)
    table.put("a", "c", 1, {"t": 1})
    table.lose("a", "c")
    assert table.home("c") is None
    assert table.nodes_wanting("t") == {"a": 1}
    table.put("b", "c", 2, {})
    assert moves.seen == [("c", "a", "b")]


def test_a_client_that_left_on_its_way_is_still_owed_from_before() -> None:
    table = ClientTable()
    table.put("a", "c", 1, {"t": 1})
    table.put("b", "c", 2, {})
    table.drop("b", "c")
    moves = Moves(table)
    table.put("d", "c", 3, {})
    assert moves.seen == [("c", "a", "d")]


def test_a_forgotten_node_leaves_nothing() -> None:
    table = ClientTable()
    table.put("a", "c", 1, {"t": 1})
    table.put("b", "c", 2, {})
    table.forget("a")
    table.forget("b")
    assert (table.nodes_wanting("t"), table.home("c"), table.digest("a")) == ({}, None, 0)


def test_a_client_that_one_node_lost_is_where_another_named_it_before() -> None:
    table = ClientTable()
    table.put("a", "c", 5, {"t": 1})
    table.put("b", "c", 3, {"t": 2})
    moves = Moves(table)
    table.lose("a", "c")
    assert (table.home("c"), moves.seen, table.orphaned("a")) == ("b", [("c", "a", "b")], False)


def test_where_a_client_was_counts_though_it_is_heard_later_than_where_it_is() -> None:
    """After a restart: it has not said yet what it wants where it is."""
    table = ClientTable()
    table.put("b", "c", 7, {})
    table.put("a", "c", 5, {"t": 1})
    assert (table.home("c"), table.nodes_wanting("t")) == ("b", {"a": 1})
    table.put("b", "c", 7, {"t": 1})
    assert table.nodes_wanting("t") == {"b": 1}
    table.put("a", "c", 5, {"u": 1})
    assert table.nodes_wanting("u") == {}
