"""Where tasks run: in this process, in local processes (joblib), or on a dask cluster. One small seam.

    with engine("dask", workers=2) as run:
        for task, outcome in run(function, tasks): ...       as they complete; outcome: a result, or a Failure

A worker that dies loses its task only. Tasks that may have killed a worker are run again alone at the end, so that one
that always does (out of memory, say) fails by itself and takes no other with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from veilstream.errors import InputError

ENGINES = ("serial", "joblib", "dask")
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


def engine(name: str, workers: int | None = None, scheduler: str | None = None) -> AbstractContextManager[Run[Any]]:
    """A context manager that gives a `Run`."""
    if name not in ENGINES:
        raise InputError(f"`engine` must be one of {', '.join(ENGINES)}, found {name!r}")
    if scheduler is not None and name != "dask":
        raise InputError(f"`scheduler` is for `engine='dask'`, found `engine='{name}'`")
    if workers is not None and workers < 1:
        raise InputError(f"`workers` must be at least 1, found {workers}")
    if name == "serial":
        return serial()
    count = workers or os.cpu_count() or 1
    return local_processes(count) if name == "joblib" else dask_cluster(count, scheduler)


@contextmanager
def serial() -> Iterator[Run[Any]]:
    def run(function: Callable[[T], Any], tasks: Sequence[T]) -> Iterator[tuple[T, Outcome]]:
        for task in tasks:
            yield task, guarded(function, task)

    yield run


# --- local processes -------------------------------------------------------------------------------------


@contextmanager
def local_processes(workers: int) -> Iterator[Run[Any]]:
    """joblib's loky. When a worker dies its pool ends: those that had begun become suspects, the rest goes on."""
    try:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import BrokenProcessPool
    except ImportError:
        raise InputError(
            "`engine='joblib'` needs joblib: pip install 'veilstream[fleet]', or `engine='serial'`"
        ) from None

    def attempt(function: Callable[[T], Any], tasks: Sequence[T], begun: set[int]) -> Iterator[tuple[int, Outcome]]:
        """Results by place; `begun` collects the places handed out. Ends early if a worker dies."""

        def handed_out() -> Iterator[Any]:
            for i, task in enumerate(tasks):
                begun.add(i)
                yield delayed(_numbered)(function, i, task)

        # max_nbytes: no array of a user is put on a disk to be shared
        pool = Parallel(
            max(workers, 2),  # with 1 joblib would run them in this process; handing out one at a time is the same
            backend="loky",
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch=workers * AHEAD if workers > 1 else 1,
            max_nbytes=None,
        )
        try:
            yield from pool(handed_out())
        except BrokenProcessPool:
            return

    def run(function: Callable[[T], Any], tasks: Sequence[T]) -> Iterator[tuple[T, Outcome]]:
        left, suspects = list(tasks), list[T]()
        while left:
            begun, done = set[int](), set[int]()
            for i, outcome in attempt(function, left, begun):
                done.add(i)
                yield left[i], outcome
            suspects += [left[i] for i in sorted(begun - done)]
            left = [task for i, task in enumerate(left) if i not in begun]
        for task in suspects:
            yield task, next((o for _, o in attempt(function, [task], set())), DIED)

    yield run


def _numbered(function: Callable[[T], Any], number: int, task: T) -> tuple[int, Outcome]:
    return number, guarded(function, task)


# --- dask ------------------------------------------------------------------------------------------------


@contextmanager
def dask_cluster(workers: int, address: str | None) -> Iterator[Run[Any]]:
    """`dask.distributed`: the scheduler at the address, or a cluster of local processes."""
    try:
        import dask
        import distributed
    except ImportError:
        raise InputError(
            "`engine='dask'` needs distributed: pip install 'veilstream[fleet]', or `engine='serial'`"
        ) from None
    with dask.config.set(DASK), _quiet(), _client(distributed, workers, address) as client:
        yield partial(_on_dask, distributed, client)


@contextmanager
def _client(distributed: Any, workers: int, address: str | None) -> Iterator[Any]:
    if address is None:
        with (
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # any free port, this machine only
                silence_logs=50,
            ) as cluster,
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
            raise InputError(
                f"the dask scheduler at {address} has no workers; start some with: dask worker {address}"
            ) from None
        yield client


def _on_dask(
    distributed: Any, client: Any, function: Callable[[T], Any], tasks: Sequence[T]
) -> Iterator[tuple[T, Outcome]]:
    """A few tasks per thread at a time; each travels with its data, so it can run again wherever there is a worker."""
    of: dict[str, T] = {}

    def submit(waiting: Sequence[T]) -> set[Any]:
        futures = [client.submit(guarded, function, task, pure=False) for task in waiting]
        of.update(zip((f.key for f in futures), waiting, strict=True))
        return set(futures)

    def first_done(going: set[Any]) -> set[Any]:
        """Those that ended, at least one; none if the scheduler went away, or all workers for too long."""
        since = monotonic()
        while True:
            try:
                return set(distributed.wait(going, timeout=LOOK_S, return_when="FIRST_COMPLETED").done)
            except (TimeoutError, CancelledError):
                if any(f.status in ("cancelled", "lost") for f in going):
                    return set()
                since = monotonic() if client.scheduler_info()["workers"] else since
                if monotonic() - since > NO_WORKER_S:
                    return set()

    def attempt(tasks: Sequence[T], ahead: int) -> Iterator[tuple[T, Outcome | None]]:
        queue = list(tasks)[::-1]
        going = submit([queue.pop() for _ in range(min(ahead, len(queue)))])
        while going:
            done = first_done(going)
            for future in done or going:
                yield of.pop(future.key), _outcome(distributed, future) if done else GONE
            going = (going - done) | submit([queue.pop() for _ in range(min(len(done), len(queue)))]) if done else set()
        yield from ((task, GONE) for task in queue)

    suspects = list[T]()
    for task, outcome in attempt(tasks, AHEAD * max(1, sum(client.nthreads().values()))):
        if outcome is None:
            suspects.append(task)
        else:
            yield task, outcome
    for task in suspects:
        yield task, next((o for _, o in attempt([task], 1)), None) or DIED


def _outcome(distributed: Any, future: Any) -> Outcome | None:
    """What became of it; None if its workers died."""
    try:
        return future.result()
    except distributed.scheduler.KilledWorker:
        return None
    except (CancelledError, TimeoutError, OSError):
        return GONE
    except ImportError as missing:
        return Failure(f"the dask workers lack {missing.name}; install the same veilstream there")


@contextmanager
def _quiet() -> Iterator[None]:
    """Dead workers and closed connections are told in the summary, not by dask's log."""
    import logging

    named = [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "distributed"]
    before = {log: log.level for log in map(logging.getLogger, ["distributed", *named])}
    for log in before:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in before.items():
            log.setLevel(level)
