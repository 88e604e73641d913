"""Viterbi: the likeliest whole path."""

from veilstream.audit.attacks.attack import Attack, Evidence
from veilstream.audit.traces import Ints


def guess(seen: Evidence) -> Ints:
    assert seen.beliefs.path is not None
    return seen.beliefs.path


ATTACK = Attack("Viterbi", "the likeliest whole path", guess)
