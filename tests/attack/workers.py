"""Two workers on NATS that both believe a stream is theirs, over a store that loses, delays and reorders answers."""

import asyncio
from unittest import mock

from attack.drill import Trial
from fakejetstream import FaultyLink, Server
from gatewaykit import artefact
from nats_drill import agrees
from natskit import SEAL, message, session_on
from veilstream.gateway.nats.layout import binding_of
from veilstream.gateway.nats.ledger import decode
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.space import Space


async def run_two_workers(
    art, server: Server, rng, faults: float, steps: int, streams: int = 3, value: float = 3
) -> int:
    """Each is given every batch, at the same time; how many writes did not hold."""
    workers = [session_on(art, FaultyLink(server, rng, faults)) for _ in range(2)]
    step = 0
    while step < steps:
        n = rng.randint(1, 3)
        times = range(step, min(step + n, steps))
        waiting = [message(f"s{i}", {"t": t, "value": value}, f"s{i}/{t}") for t in times for i in range(streams)]
        step += n
        for _ in range(200):
            if not waiting:
                break
            done = await asyncio.gather(*[w.handle(waiting) for w in workers])
            finished = {m.reply for found in done for m in found}
            waiting = [m for m in waiting if m.reply not in finished]
        assert not waiting
    assert not any(sum(w.stats.refused.values()) for w in workers)
    return sum(w.ledger.conflicts for w in workers)


def opened(server: Server, stream: str) -> list[tuple[int, bytes]]:
    """Every revision of a stream's key, out of its seal."""
    key = Names().key(DEFAULT_SPACE, stream)
    return [(r, SEAL.recorded(key, server.stored(r, value))) for r, value in server.history[key]]


def faults_of(art, server: Server, steps: int, streams: int = 3) -> list[str]:
    """What is wrong with what was published and what is kept."""
    wrong = []
    for i in range(streams):
        released = {}
        for step in range(steps):
            payloads = set(server.published.get(f"default.s{i}.{step}", []))
            if len(payloads) != 1:
                wrong.append(f"{len(payloads)} different releases of one step")
            released[step] = next(iter(payloads), b"{}")
        if not wrong:
            revision, body = opened(server, f"s{i}")[-1]
            record = decode((DEFAULT_SPACE, f"s{i}"), revision, body, binding_of(Space(art)))
            memory, totals, log = agrees(art, record, released)
            wrong += [name for name, same in (("memory", memory), ("totals", totals), ("log", log)) if not same]
    return wrong


def short(sleep):
    return lambda seconds, *more: sleep(0)


def two(t: Trial) -> int:
    server, steps, faults = Server(), t.times(30), t.rng.choice([0.1, 0.25, 0.4])
    art = artefact(t.folder / "p.veil")
    with mock.patch("asyncio.sleep", short(asyncio.sleep)):
        conflicts = asyncio.run(run_two_workers(art, server, t.rng, faults, steps))
    wrong = faults_of(art, server, steps)
    assert not wrong, wrong[0]
    return conflicts
