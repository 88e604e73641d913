"""State machines that are killed between any two statements, each against a simple model: what they have in common.

A kill is made without a process: at the chosen statement the files are copied as they are (the log and the count with
them), which is what `kill -9` leaves, and the next gateway starts from the copy.
"""

import contextlib
import functools
import itertools
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from attack.drill import Trial
from gatewaykit import artefact
from veilstream.artefact import Artefact
from veilstream.gateway.store import Store

FILES = ("s.db", "s.db-wal", "s.db-count")
STREAMS = st.sampled_from(["a", "b", "c"])
STATEMENTS = st.integers(1, 9)
VALUES = st.one_of(st.integers(-2, 20).map(float), st.just(math.nan), st.none(), st.just((1.0, 2.0)), st.just(1e300))
counted = {"rules": 0, "kills": 0}  # of the trial that runs


@functools.cache
def toy(period_s: float | None) -> Artefact:
    """One policy for all of them."""
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        return artefact(Path(folder) / "p.veil", name="grid2x3-toy", period_s=period_s)


class Killed(BaseException):
    """Nobody catches it, as nobody catches a kill."""


class Tripwire:
    """A connection that dies before or after its n-th statement, once."""

    def __init__(self, db: Any, at: int, after: bool, copy: Any) -> None:
        self._db, self._left, self._after, self._copy = db, at, after, copy
        self.committed = 0

    def execute(self, sql: str, *values: Any) -> Any:
        return self._do(self._db.execute, sql, *values)

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._do(self._db.executemany, sql, rows)

    def _do(self, call: Any, sql: str, *values: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            self._die()
        found = call(sql, *values)
        self.committed += sql == "COMMIT"
        if self._left == 0:
            self._die()
        return found

    def _die(self) -> None:
        self._copy()
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class Killable(RuleBasedStateMachine):
    """A store in a folder that can be closed, opened again, and killed."""

    def __init__(self) -> None:
        super().__init__()
        self._folders = tempfile.TemporaryDirectory(prefix="attack-")
        self._numbers = itertools.count()
        self.folder = self._fresh()

    def _fresh(self) -> Path:
        folder = Path(self._folders.name) / str(next(self._numbers))
        folder.mkdir()
        return folder

    @property
    def path(self) -> Path:
        return self.folder / "s.db"

    def killed(self, store: Store, at: int, after: bool, work: Any) -> tuple[bool, bool]:
        """Do it with a kill at that statement; whether it was killed, and whether its commit was done by then."""
        counted["kills"] += 1
        next_folder = self._fresh()

        def copy() -> None:
            for name in FILES:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(self.folder / name, next_folder / name)

        wire = store.file.db = Tripwire(store.file.db, at, after, copy)
        try:
            work()
        except Killed:
            store.file.abandon()
            self.folder = next_folder
            return True, wire.committed > 0
        finally:
            store.file.db = wire._db
        return False, True

    def teardown(self) -> None:
        self._folders.cleanup()


def run(machine: type[RuleBasedStateMachine], t: Trial) -> int:
    counted.update(rules=0, kills=0)
    quiet = settings(
        max_examples=t.times(25),
        stateful_step_count=20,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate],  # a trial can be replayed; to make it smaller would take minutes
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(t.rng.randrange(2**32))(machine), settings=quiet)
    return counted["rules"]
