"""Run the items, some side by side; what is there already, made with the same settings, is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import veilstream
from reproduce.cache import write
from reproduce.geolife import digest, folder_of
from reproduce.index import page
from reproduce.item import Budget, Desk, Finding, Item, Ran, as_json
from reproduce.learned import available
from reproduce.together import together
from veilstream.errors import InputError
from veilstream.solvers.solution import Progress

MODULES = (
    "fig_idc",
    "fig_adc",
    "convergence",
    "toy",
    "grid_trajectory",
    "fig_geolife",
    "table_idc",
    "table_adc",
    "geolife_settings",
    "map_geolife",
    "beyond_users",
    "beyond_meters",
    "beyond_orders",
)


def items() -> list[Item]:
    return [import_module(f"reproduce.{name}").ITEM for name in MODULES]


def chosen(only: str | None) -> list[Item]:
    every = items()
    if only is None:
        return every
    by_name = {item.name: item for item in every}
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        raise InputError(f"`only`: no item {unknown[0] if unknown else only!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def run(
    folder: Path,
    wanted: Sequence[Item],
    budget: Budget,
    geolife: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[Ran], None] | None = None,
    meters: Path | None = None,
    workers: int = 1,
) -> list[Ran]:
    """Every item, `workers` of them at once; the index is written anew after each: an interrupted run leaves a whole
    one."""
    if geolife is not None:
        geolife = Path(geolife)
        folder_of(geolife)
    if meters is not None and not meters.is_file():
        raise InputError(f"{meters}: no such file; `meters` names a CSV of kWh, one column a household")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    outcomes: list[Ran] = []
    write(folder / "index.html", page(_all(folder, outcomes)))  # before any work: it may not be writable
    jobs = [(item, Desk(item.name, folder, budget, geolife, progress, meters)) for item in wanted]
    several = min(workers, len(jobs)) > 1
    for outcome in together(_one, jobs, workers, progress) if several else (_one(*job) for job in jobs):
        outcomes.append(outcome)
        write(folder / "index.html", page(_all(folder, outcomes)))
        if tell:
            tell(outcome)
    place = {item.name: i for i, item in enumerate(wanted)}
    return sorted(outcomes, key=lambda o: place[o.item.name])


def _one(item: Item, desk: Desk) -> Ran:
    if item.needs_geolife and desk.geolife is None:
        return Ran(item, "skipped: needs GeoLife's folder", None)
    if item.needs_meters and desk.meters is None:
        return Ran(item, "skipped: needs a CSV of meter readings", None)
    if item.needs is not None and find_spec(item.needs) is None:
        return Ran(item, f"skipped: needs {item.needs}; pip install 'veilstream[deep]'", None)
    settings = {"item": item.name, "veilstream": veilstream.__version__, **asdict(desk.budget)}
    settings["deep"] = available()  # with its library an item holds more
    if item.needs_geolife and desk.geolife is not None:
        settings["geolife"] = digest(desk.geolife)  # another folder is other data
    if item.beyond and desk.meters is not None:
        settings["meters"] = f"{desk.meters.name} {desk.meters.stat().st_size}"
    done = read(desk.folder, item)
    if done is not None and done[1] == settings:
        return Ran(item, "kept", done[0], done[2])
    mark = desk.folder / f"{item.name}.json"
    mark.unlink(missing_ok=True)  # written last: a half-made item counts as not there
    began = time.process_time()
    finding = item.make(desk)
    cpu_s = time.process_time() - began
    write(mark, as_json(finding, settings, cpu_s))
    return Ran(item, "made", finding, cpu_s)


def read(folder: Path, item: Item) -> tuple[Finding, dict[str, Any], float] | None:
    """What an earlier run found, if it ended and its files are there."""
    wanted = [folder / f"{item.name}.{ending}" for ending in ("json", "csv", "png", "svg")]
    if not all(path.is_file() for path in wanted):
        return None
    try:
        told = json.loads(wanted[0].read_text(encoding="utf-8"))
        verdicts = {str(k): str(v) for k, v in told["verdicts"].items()}
        ours, agrees, why, ran = (str(told[name]) for name in ("ours", "agrees", "why", "ran"))
        table = [[str(cell) for cell in row] for row in told["table"]]
        return Finding(ours, agrees, why, verdicts, ran, table), told["settings"], float(told["cpu_s"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _all(folder: Path, outcomes: Sequence[Ran]) -> list[Ran]:
    """For the index: this run's items, and what earlier runs left of the others."""
    ran = {o.item.name: o for o in outcomes}
    every = []
    for item in items():
        if item.name in ran and ran[item.name].finding is not None:
            every.append(ran[item.name])
        elif (done := read(folder, item)) is not None:
            every.append(Ran(item, "kept", done[0], done[2]))
        elif item.name in ran:
            every.append(ran[item.name])
        else:
            every.append(Ran(item, "not run yet", None))
    return [replace(o) for o in every]
