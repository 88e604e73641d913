"""Connections that show no token and take their time: whoever has one is answered all the same."""

import asyncio
import contextlib
import json
import random
import time

from attack.drill import Trial
from gatewaykit import artefact, core_of
from httpkit import Server
from patience import crowd
from veilstream.gateway.guard import Guard

TOKEN = "a token of decent length"
CROWD, FAR = 600, "127.0.0.9"  # an address of this machine that is taken for one of elsewhere
SOON_S = 10
PUBLIC = b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n"
WRONG = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer not the token at all\r\n\r\n"


def held(t: Trial) -> int:
    """A crowd from elsewhere holds what it can; a device with a token, one that stays, and a look from here go on."""
    near = Guard.is_near
    Guard.is_near = lambda self, address: address != FAR and near(self, address)
    try:
        with core_of(artefact(t.folder / "p.veil")) as core:
            server = Server(core, token=TOKEN)
            try:
                return asyncio.run(_held(t, server.gateway.port))
            finally:
                server.end()
    finally:
        Guard.is_near = near


async def _held(t: Trial, port: int) -> int:
    made = [0]
    crowd = [asyncio.create_task(_idle(random.Random(t.rng.random()), port, made)) for _ in range(CROWD)]
    stays = await asyncio.open_connection("127.0.0.1", port)
    try:
        until, step = time.monotonic() + t.times(20), 0
        while time.monotonic() < until or step < 3:
            await asyncio.sleep(t.rng.uniform(0, 0.5))
            for source, token in ((FAR, TOKEN), ("127.0.0.1", TOKEN), ("127.0.0.1", None)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                await _answered(reader, writer, step, token)
                writer.close()
                step += 1
            await _answered(*stays, step, TOKEN)
            step += 1
    finally:
        stays[1].close()
        left = set(crowd)
        while left:  # Python 3.11's wait_for may swallow one that comes with an answer
            for one in left:
                one.cancel()
            _, left = await asyncio.wait(left, timeout=1)
    return made[0]


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, step: int, token: str | None) -> None:
    """A reading with a token, a look at a public page without one."""
    if token is None:
        writer.write(PUBLIC)
    else:
        body = json.dumps({"stream": "a", "t": step, "value": 3}).encode()
        head = f"POST /v1/release HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    async with asyncio.timeout(SOON_S * crowd()):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head[:60]
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))


async def _idle(rng: random.Random, port: int, made: list[int]) -> None:
    """One of the crowd: asks for public things now and then, byte by byte, or not at all, and comes again."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FAR, 0))
            made[0] += 1
            try:
                asks = rng.choice([PUBLIC, PUBLIC + PUBLIC, WRONG, PUBLIC[: rng.randrange(len(PUBLIC))], b""])
                writer.write(asks)
                for byte in PUBLIC * 3:
                    if rng.random() < 0.5 and await asyncio.wait_for(reader.read(4096), 30) == b"":
                        break
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(rng.uniform(0.1, 3))
            finally:
                writer.transport.abort()
        await asyncio.sleep(rng.uniform(0.5, 2))
