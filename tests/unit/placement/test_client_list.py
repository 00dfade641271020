from __future__ import annotations

from random import Random
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.placement import client_list
from brokerweave.placement.client_list import ClientList, ClientListCopy


def synchronised(clients: ClientList, copy: ClientListCopy) -> dict[str, str]:
    while copy.held != clients.revision:
        for page in clients.pages(copy.held, 2):
            copy.take(page)
    return {name: entry.site for name, entry in copy.clients.items()}


CHANGES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", ""])), max_size=200)


@given(CHANGES, st.integers(0, 99))
def test_a_copy_becomes_equal_whatever_is_lost_doubled_and_overtaken(
    changes: list[tuple[int, str]], seed: int
) -> None:
    random, clients, truth = Random(seed), ClientList("g"), dict[str, str]()
    copies = [ClientListCopy(), ClientListCopy()]
    pages = []
    with mock.patch.object(client_list, "MOST_DEPARTED", 5):
        for number, site in changes:
            name = f"client {number}"
            if site:
                clients.at(name, site)
                truth[name] = site
            else:
                clients.gone(name)
                truth.pop(name, None)
            if random.random() < 0.3:
                copy = random.choice(copies)
                pages += clients.pages(copy.held, 3)
                random.shuffle(pages)
                for page in pages[:2] * random.randint(0, 2):
                    copies[0].take(page)
            if random.random() < 0.02:
                copies[1] = ClientListCopy()  # that controller restarted
    assert len(clients) == len(truth)
    assert all(synchronised(clients, copy) == truth for copy in copies)
    assert clients.sites() == set(truth.values())


def test_a_long_list_takes_several_datagrams_and_a_change_of_it_one() -> None:
    clients, copy = ClientList("g"), ClientListCopy()
    for number in range(1000):
        clients.at(f"client-{number:04}", "a")
    assert len(clients.pages(0, 1000)) > 10
    assert len(synchronised(clients, copy)) == 1000
    clients.at("client-0500", "b")
    (page,) = clients.pages(copy.held, 1000)
    assert [entry.client for entry in page.clients] == ["client-0500"]


def test_a_rate_is_told_again_only_when_it_is_another() -> None:
    clients = ClientList("g")
    clients.at("x", "a", 10.0)
    clients.at("x", "a", 11.0)
    assert clients.revision == 1
    clients.at("x", "a", 20.0)
    assert clients.revision == 2
    assert clients.site_of("x") == "a"
    clients.gone("x")
    clients.gone("x")
    assert (clients.revision, clients.site_of("x")) == (3, None)
