"""Names, subjects and partitions on NATS: one to one, safe, shared evenly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilstream.errors import InputError
from veilstream.gateway.nats.client import LinkSettings
from veilstream.gateway.nats.membership import owners
from veilstream.gateway.nats.names import Names, text, token


@settings(deadline=None)  # of a loaded machine
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_tokens_are_one_to_one_and_safe(name):
    found = token(name)
    assert text(found) == name
    assert found.isascii() and not set(found) & set(" .*>\t\r\n") and found


@settings(deadline=None)  # of a loaded machine
@given(st.text(alphabet="ab=4061FfG.é ", max_size=8))
def test_a_token_of_two_names_does_not_exist(found):
    name = text(found)
    assert name is None or token(name) == found


def test_the_partition_is_stripped_and_odd_subjects_are_refused():
    names = Names()
    assert names.parse("veil.part.3.default.a=2Eb") == ("default", "a.b")
    for subject in ("veil.part.3.default.a=2eb", "veil.part.3.default.=61", "veil.in.default.a", "veil.part.3.d.a.b"):
        assert names.parse(subject) is None
    with pytest.raises(InputError, match="`prefix`"):
        Names("a.b")


@settings(deadline=None)  # of a loaded machine
@given(st.integers(1, 64), st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=9))
def test_partitions_are_shared_evenly_and_the_same_by_all(partitions, workers):
    found = owners(partitions, sorted(workers))
    assert found == owners(partitions, sorted(workers, reverse=True))
    load = [found.count(w) for w in workers]
    assert sum(load) == partitions and max(load) <= -(-partitions // len(workers))


def test_urls_are_shown_without_their_secrets():
    settings = LinkSettings(("nats://gate:secret@a:4222", "b"), password="hidden")
    assert settings.shown == "a:4222, b:4222" and "hidden" not in repr(settings)
