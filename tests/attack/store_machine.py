"""The store, killed between any two statements, against a simple model."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from attack.drill import Trial
from attack.killable import STATEMENTS, STREAMS, Killable, counted, run
from veilstream.gateway.records import Batch, Binding, StoreError, Stream
from veilstream.gateway.store import Store


class StoreMachine(Killable):
    """The model: what every stream was last, every release, and what is in the outbox."""

    def __init__(self) -> None:
        super().__init__()
        self.binding = Binding("policy", "chain")
        self.streams: dict[str, tuple] = {}
        self.releases: dict[tuple[str, int], bytes | None] = {}
        self.outbox: list[tuple[str, bytes]] = []
        self.pruned: set[tuple[str, int]] = set()
        self.store = self._open()

    def _open(self) -> Store:
        return Store(self.path, {"": self.binding})

    def _batch(self, what: list[tuple[str, int, bytes | None]]) -> tuple[Batch, dict[str, tuple]]:
        """The commit of these releases, and what the streams are then."""
        batch, after = Batch(), {}
        for name, step, message in what:
            s = (
                next((s for s in batch.streams if s.name == name), None)
                or self.store.load("", name)
                or Stream("", name)
            )
            s.last_step = max(step, -1 if s.last_step is None else s.last_step)
            s.total, s.memory, s.private.state = s.total + 0.5, message, step % 7
            if s not in batch.streams:
                batch.streams.append(s)
            batch.releases.append((s, step, s.total, message))
            after[name] = (s.last_step, s.total, s.memory, s.private.state)
        batch.outbox = [(name, f"out/{name}", message or b"-") for name, _, message in what]
        return batch, after

    def _took(self, what: list, after: dict[str, tuple]) -> None:
        self.streams |= after
        self.releases |= {(name, step): message for name, step, message in what}
        self.outbox += [(f"out/{name}", message or b"-") for name, _, message in what]

    RELEASES = st.lists(
        st.tuples(STREAMS, st.integers(0, 12), st.none() | st.binary(max_size=6)), min_size=1, max_size=6
    )

    @rule(what=RELEASES)
    def commit(self, what: list) -> None:
        counted["rules"] += 1
        keys = [(name, step) for name, step, _ in what]
        batch, after = self._batch(what)
        gone = self.pruned & set(keys)  # the core asks for the last step: the store alone cannot know
        if len(set(keys)) < len(keys) or (set(keys) & self.releases.keys()):
            try:
                self.store.commit(batch)
            except StoreError:
                pass
            else:
                raise AssertionError("a step was released twice")
        elif not gone:
            self.store.commit(batch)
            self._took(what, after)
        self.compare()

    @rule(what=RELEASES, at=STATEMENTS, after=st.booleans())
    def kill(self, what: list, at: int, after: bool) -> None:
        counted["rules"] += 1
        keys = [(name, step) for name, step, _ in what]
        if len(set(keys)) < len(keys) or set(keys) & (self.releases.keys() | self.pruned):
            return
        batch, then = self._batch(what)
        died, done = self.killed(self.store, at, after, lambda: self.store.commit(batch))
        if done:
            self._took(what, then)
        if died:
            self.store = self._open()
        self.compare()

    @rule(n=st.integers(0, 5))
    def confirm(self, n: int) -> None:
        self.store.confirm([i for i, _, _ in self.store.unsent()[:n]])
        self.outbox = self.outbox[n:]
        self.compare()

    @rule(keep=st.integers(0, 6))
    def prune(self, keep: int) -> None:
        self.store.prune(keep)
        for name, step in [k for k in self.releases if k[1] <= self.streams[k[0]][0] - keep]:
            del self.releases[name, step]
            self.pruned.add((name, step))
        self.compare()

    @rule(chain=st.booleans())
    def another_policy(self, chain: bool) -> None:
        """Steps and totals stay, the memory goes; the last true state with the chain."""
        new = Binding(self.binding.policy + "'", self.binding.chain + "'" * chain)
        self.store.close()
        self.binding = new
        self.store = self._open()
        self.streams = {
            name: (last, total, None, -1 if chain else state) for name, (last, total, _, state) in self.streams.items()
        }
        self.compare()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()
        self.compare()

    def compare(self) -> None:
        found = {s.name: s for s in self.store.streams()}
        assert {n: (s.last_step, s.total, s.memory, s.private.state) for n, s in found.items()} == self.streams
        for (name, step), message in self.releases.items():
            assert self.store.find(found[name], step) == (message,)
        for name, step in self.pruned - self.releases.keys():
            assert self.store.find(found[name], step) is None
        assert [(topic, payload) for _, topic, payload in self.store.unsent()] == self.outbox

    def teardown(self) -> None:
        self.store.close()
        super().teardown()


def store(t: Trial) -> int:
    return run(StoreMachine, t)
