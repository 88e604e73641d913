"""The list: every drill, and the promise it tries to break."""

from attack import (
    brokers,
    clock_machine,
    core_machine,
    files,
    idle,
    kills,
    openapi,
    owners,
    path,
    same,
    store_machine,
    wire,
    workers,
)
from attack.drill import Drill

DRILLS = [
    Drill("store", "all of a commit or nothing, killed between any two statements", store_machine.store),
    Drill("core", "one release per step, the first reading decides, meter and ceiling hold", core_machine.core),
    Drill("clock", "one release of every stream per tick, reading or not", clock_machine.clock),
    Drill("flipped bytes", "a damaged store is one line, never a second draw", files.flips),
    Drill("two owners", "one file has one owner, whatever it is called", owners.two),
    Drill("written over", "an old copy over a store in use is noticed at once", owners.overwritten),
    Drill("two workers", "two owners, lost and late answers: one release per step", workers.two),
    Drill("veil files", "a file from a stranger is one line, or works", files.veil),
    Drill("readers", "a data file is read, or refused in one line without a value of it", files.readers),
    Drill("messages", "nothing is raised, and no verdict depends on a value", wire.messages),
    Drill("wire http", "one request costs one request", wire.http),
    Drill("idle http", "who has the token is answered, whoever else is connected", idle.held),
    Drill("wire mqtt", "one message costs one message", wire.mqtt, "mosquitto"),
    Drill("wire broker", "a broker that garbles costs its connection", brokers.garbled),
    Drill("wire nats", "one message costs one message", wire.nats, "nats-server"),
    Drill("openapi", "every answer is one that the description knows", openapi.served),
    Drill("kill pipe", "nothing lost, nothing twice", kills.pipe),
    Drill("kill http", "nothing lost, nothing twice", kills.http),
    Drill("kill mqtt", "nothing lost, nothing twice", kills.mqtt, "mosquitto"),
    Drill("kill nats", "nothing lost, nothing twice, no forked memory", kills.nats, "nats-server"),
    Drill("same bytes", "two truths, one release: all that is public is equal", same.equal),
    Drill("same path", "two truths, one release: the same bytecode runs", path.path),
    Drill("same time", "two truths, one release: it takes as long (rank test)", same.as_long),
]
