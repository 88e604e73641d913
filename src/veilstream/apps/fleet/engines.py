"""Where tasks run: in this process, in local processes (loky), or on a dask cluster; each an executor of futures.

    with engine("dask", workers=2) as run:
        for task, outcome in run(function, tasks): ...       as they complete; outcome: a result, or a Failure

A worker that dies loses its task only. Tasks that may have killed a worker are run again alone at the end, so that one
that always does (out of memory, say) fails by itself and takes no other with it.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from veilstream.errors import InputError, need

CONNECT_S = 5.0  # to reach a scheduler, and for it to have a worker
LOOK_S, NO_WORKER_S = 5.0, 60.0  # how often a cluster is looked at, how long it may be without any worker
AHEAD = 2  # tasks handed out per worker

DASK = {
    "distributed.scheduler.allowed-failures": 0,  # of a worker; then it is tried alone
    "distributed.worker.memory.target": False,  # nothing of a user is spilled to a disk
    "distributed.worker.memory.spill": False,
    "distributed.deploy.lost-worker-timeout": "10 minutes",  # a busy machine starts one slowly
}

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """Why a task has no result, in one line."""

    line: str


Outcome = Any  # what the function gave, or a Failure
Run = Callable[[Callable[[T], Any], Sequence[T]], Iterator[tuple[T, Outcome]]]
DIED = Failure("its worker died, and again when it ran alone (out of memory?)")
GONE = Failure("the dask cluster went away; run the same command again: what is done is kept")


def guarded(function: Callable[[T], Any], task: T) -> Outcome:
    """The result, or a Failure. An unexpected fault is named by its type only: its text may hold true values."""
    try:
        return function(task)
    except InputError as fault:
        return Failure(" ".join(str(fault).split()))
    except MemoryError:
        return Failure("out of memory")
    except Exception as fault:  # the boundary between users: no fault of one may stop the others
        where = fault.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = "" if where is None else f" in {os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}"
        return Failure(f"unexpected {type(fault).__name__}{place}; run this user alone to see more")


@dataclass(frozen=True)
class Workers:
    """Workers, and how their ends are known."""

    submit: Callable[..., Future[Any]]
    ahead: int = 1  # tasks handed out at a time
    killed: type[Exception] = BrokenExecutor  # what a task raises whose worker died, or may have
    alive: Callable[[], bool] = lambda: True  # whether there still are workers


def engine(name: str, workers: int | None = None, scheduler: str | None = None) -> AbstractContextManager[Run[Any]]:
    """A context manager that gives a `Run`."""
    if name not in POOLS:
        raise InputError(f"`engine` must be one of {', '.join(POOLS)}, found {name!r}")
    if scheduler is not None and name != "dask":
        raise InputError(f"`scheduler` is for `engine='dask'`, found `engine='{name}'`")
    if workers is not None and workers < 1:
        raise InputError(f"`workers` must be at least 1, found {workers}")
    return _running(POOLS[name](workers or os.cpu_count() or 1, scheduler))


@contextmanager
def _running(pool: AbstractContextManager[Workers]) -> Iterator[Run[Any]]:
    with pool as workers:
        yield partial(run, workers)


def run(pool: Workers, function: Callable[[T], Any], tasks: Sequence[T]) -> Iterator[tuple[T, Outcome]]:
    """Every task with what became of it."""
    suspects = list[T]()
    for task, outcome in attempt(pool, function, tasks, pool.ahead):
        if outcome is None:
            suspects.append(task)
        else:
            yield task, outcome
    for task in suspects:
        yield task, next(o for _, o in attempt(pool, function, [task], 1)) or DIED


def attempt(
    pool: Workers, function: Callable[[T], Any], tasks: Sequence[T], ahead: int
) -> Iterator[tuple[T, Outcome | None]]:
    """A few tasks at a time, each with its data, so that it can run again; None where a worker died."""
    queue, going = list(tasks)[::-1], dict[Future[Any], T]()
    done: Iterable[Any] = range(ahead)
    while True:
        for task in [queue.pop() for _ in list(done)[: len(queue)]]:
            going[pool.submit(guarded, function, task)] = task
        if not going:
            return
        done = first_done(pool, going)
        for future in done:
            yield going.pop(future), outcome_of(pool, future)
        if not done:
            yield from ((task, GONE) for task in [*going.values(), *queue[::-1]])
            return


def first_done(pool: Workers, going: Iterable[Future[Any]]) -> set[Future[Any]]:
    """Futures that have ended, at least one; none if all workers are gone for too long."""
    since = monotonic()
    while not (done := wait(going, LOOK_S, FIRST_COMPLETED).done):
        since = monotonic() if pool.alive() else since
        if monotonic() - since > NO_WORKER_S:
            break
    return done


def outcome_of(pool: Workers, future: Future[Any]) -> Outcome | None:
    """The result or failure of a task; None if its worker died."""
    try:
        return future.result()
    except pool.killed:
        return None
    except (CancelledError, TimeoutError, OSError):
        return GONE
    except ImportError as missing:
        return Failure(f"the workers lack {missing.name}; install the same veilstream there")


# --- where ---------------------------------------------------------------------------------------------------


@contextmanager
def in_process(workers: int, address: str | None) -> Iterator[Workers]:
    def submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(function(*args))
        return future

    yield Workers(submit)


@contextmanager
def processes(workers: int, address: str | None) -> Iterator[Workers]:
    """joblib's loky. When a worker dies its pool ends: what had begun is suspect, a new pool does the rest."""
    need("joblib", "fleet", ", or `engine='serial'`")
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers)

    def submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
        nonlocal pool
        try:
            return pool.submit(function, *args)  # type: ignore[no-any-return]
        except BrokenExecutor:
            pool = ProcessPoolExecutor(workers)
            return submit(function, *args)

    try:
        yield Workers(submit, workers * AHEAD if workers > 1 else 1)
    finally:
        pool.shutdown(kill_workers=True)


@contextmanager
def cluster(workers: int, address: str | None) -> Iterator[Workers]:
    """`dask.distributed`: the scheduler at the address, or a cluster of local processes."""
    dask, distributed = (need(name, "fleet", ", or `engine='serial'`") for name in ("dask", "distributed"))
    with dask.config.set(DASK), _quiet(), _client(distributed, workers, address) as client:
        yield Workers(
            client.get_executor(pure=False).submit,
            AHEAD * max(1, sum(client.nthreads().values())),
            distributed.scheduler.KilledWorker,
            lambda: bool(client.scheduler_info()["workers"]),
        )


@contextmanager
def _client(distributed: Any, workers: int, address: str | None) -> Iterator[Any]:
    if address is None:  # the dashboard: any free port, this machine only
        local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "processes": True, "silence_logs": 50}
        with (
            distributed.LocalCluster(n_workers=workers, threads_per_worker=1, **local) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address, timeout=CONNECT_S)
    except (OSError, ValueError):
        raise InputError(
            f"no dask scheduler answers at {address} within {CONNECT_S:g} s; start one with: dask scheduler, "
            "or leave `scheduler` out for a local cluster"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            line = f"the dask scheduler at {address} has no workers; start some with: dask worker {address}"
            raise InputError(line) from None
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Dead workers and closed connections are told in the summary, not by dask's log."""
    named = [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "distributed"]
    before = {log: log.level for log in map(logging.getLogger, ["distributed", *named])}
    for log in before:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in before.items():
            log.setLevel(level)


POOLS: dict[str, Callable[[int, str | None], AbstractContextManager[Workers]]] = {
    "serial": in_process,
    "joblib": processes,
    "dask": cluster,
}
