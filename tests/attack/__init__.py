"""Drills that try to break what the gateway promises, for as long as one likes: `make attack` (docs/security.md).

A drill is a function of one trial: it draws what it does from the trial's generator, and raises if a promise did not
hold. A new one joins by its line in DRILLS; the short form of all of them is in `make test` (test_attack.py).
"""

from attack.drill import Drill, Finding, Trial

__all__ = ["Drill", "Finding", "Trial"]
