"""Items side by side: in processes of their own, none before those it shares points with."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from paperkit import TINY
from reproduce import together
from reproduce.item import Desk, Ran
from reproduce.run import MODULES, chosen, items, run
from veilstream.errors import InputError


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr(together, "ProcessPoolExecutor", lambda workers, *_: ThreadPoolExecutor(workers))


def jobs(folder, **after):
    return [(replace(items()[0], name=n, after=a), Desk(n, folder, TINY)) for n, a in after.items()]


def test_no_item_begins_before_those_it_comes_after_and_no_more_run_than_asked(tmp_path, threads):
    log = []

    def make(item, desk):
        log.append((item.name, "begins"))
        time.sleep(0.02)
        log.append((item.name, "ends"))
        return Ran(item, "made", None)

    wanted = jobs(tmp_path, a=(), b=("a",), c=(), d=("a", "c"), e=("not asked for",))
    ended = [o.item.name for o in together.together(make, wanted, 2)]
    assert sorted(ended) == list("abcde")
    for item, _ in wanted:
        for other in set(item.after) & set("abcde"):
            assert log.index((other, "ends")) < log.index((item.name, "begins"))
    at_once = [sum(1 if what == "begins" else -1 for _, what in log[: i + 1]) for i in range(len(log))]
    assert max(at_once) == 2


def test_long_items_weigh_more_in_the_time_left_and_nothing_goes_back(tmp_path, threads, monkeypatch):
    monkeypatch.setattr(together, "SECONDS", {"a": 90.0, "b": 10.0})
    monkeypatch.setattr(together, "LOOK_S", 0.01)
    heard = []

    class Queue(list):
        empty, get, put = lambda self: not self, lambda self: self.pop(0), list.append

    queue = Queue([("b", 0.5, "half"), ("a", 0.5, "half"), ("a", 0.1, "its second part")])
    context = SimpleNamespace(SimpleQueue=lambda: queue)
    monkeypatch.setattr(together.multiprocessing, "get_context", lambda _: context)
    make = lambda item, desk: (time.sleep(0.05), Ran(item, "made", None))[1]  # noqa: E731
    list(together.together(make, jobs(tmp_path, a=(), b=()), 2, lambda done, what: heard.append(round(done, 3))))
    assert heard == [0.05, 0.5, 0.5]


def test_every_item_has_its_seconds():
    assert set(together.SECONDS) == {item.name for item in items()}


def test_what_an_item_complains_of_is_raised(tmp_path, threads):
    def make(item, desk):
        raise InputError("no such thing")

    with pytest.raises(InputError, match="no such thing"):
        list(together.together(make, jobs(tmp_path, a=(), b=()), 2))


def test_items_come_after_items_that_there_are():
    names = [name.replace("_", "-") for name in MODULES]
    for item in items():
        assert all(names.index(other) < names.index(item.name) for other in item.after)


@pytest.mark.slow
def test_in_processes_items_are_made_told_in_order_and_kept(tmp_path):
    wanted = chosen("grid-trajectory,fig-geolife")
    told = []
    first = run(tmp_path, wanted, TINY, workers=2, tell=lambda o: told.append(o.item.name))
    assert [o.state for o in first] == ["made", "skipped: needs GeoLife's folder"]
    assert sorted(told) == ["fig-geolife", "grid-trajectory"]
    assert (tmp_path / "grid-trajectory.png").exists()
    assert run(tmp_path, wanted, TINY, workers=2)[0].state == "kept"
