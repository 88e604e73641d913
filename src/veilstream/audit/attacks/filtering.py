"""The exact filter: the best guess from all releases so far."""

from veilstream.audit.attacks.attack import Attack, Evidence, nearest
from veilstream.audit.traces import Ints


def guess(seen: Evidence) -> Ints:
    return nearest(seen.beliefs.filter, seen.distances)


ATTACK = Attack("filter", "the best guess from the releases so far", guess)
