"""Items side by side, each in a process of its own: a training keeps one core busy, the next need not wait for it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from threading import Thread

from reproduce.item import Desk, Item, Ran
from veilstream.solvers.solution import Progress

MOST = 4  # about 1 GB each
LOOK_S = 0.5
USUAL = 60.0
SECONDS = {
    "fig-idc": 148, "fig-adc": 391, "convergence": 422, "toy": 52, "grid-trajectory": 1, "fig-geolife": 233,
    "table-idc": 217, "table-adc": 198, "geolife-settings": 71, "map-geolife": 1, "beyond-users": 94,
    "beyond-meters": 22, "beyond-orders": 4,
}  # fmt: skip  # of processor time, as the index of one run says: for the time that is left
Told = tuple[str, float, str]  # item, its part that is done, what it does
Make = Callable[[Item, Desk], Ran]

_told: SimpleQueue[Told] | None = None  # in a worker: where it tells how far it is


def cores() -> int:
    """Items at once that suit this machine."""
    return min(os.cpu_count() or 1, MOST)


def together(
    make: Make, jobs: Sequence[tuple[Item, Desk]], workers: int, progress: Progress | None = None
) -> Iterator[Ran]:
    """What each item gave, as they end; an item waits for those it shares points with (`Item.after`)."""
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit JAX's threads
    told: SimpleQueue[Told] = spawn.SimpleQueue()
    waiting, running, parts = list(jobs), dict[Future[Ran], Item](), dict[str, float]()
    long = {item.name: SECONDS.get(item.name, USUAL) for item, _ in jobs}
    pool = ProcessPoolExecutor(workers, spawn, _begin, (told,))
    try:
        while waiting or running:
            for item, desk in list(waiting):
                ahead = {other.name for other, _ in waiting} | {other.name for other in running.values()}
                if len(running) < workers and not ahead & set(item.after):
                    waiting.remove((item, desk))
                    running[pool.submit(_work, make, item, replace(desk, progress=None))] = item
            ended, _ = wait(running, LOOK_S, FIRST_COMPLETED)
            while not told.empty():
                name, done, what = told.get()
                parts[name] = max(done, parts.get(name, 0.0))  # an item with several parts begins each anew
                if progress:
                    progress(sum(long[n] * part for n, part in parts.items()) / sum(long.values()), what)
            for future in ended:
                parts[running.pop(future).name] = 1.0
                yield future.result()
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # every point is written whole: the next run goes on from there
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(told: SimpleQueue[Told]) -> None:
    global _told
    _told = told
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(make: Make, item: Item, desk: Desk) -> Ran:
    def tell(done: float, what: str) -> None:
        if _told is not None:
            _told.put((item.name, done, what))

    return make(item, replace(desk, progress=tell))
