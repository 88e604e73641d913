"""GeoLife user 016 the paper's way, fitted once for all items: 5-minute means, 16 stops, gaps closed."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel

USER = "016"
WHY = (
    "The paper publishes neither its clustering nor its step; ours (200 m, 8 points, 5-minute means) gives its 16 "
    "stops and its 0.36 nats without privacy, but its stops may lie further apart."
)


def folder_of(geolife: Path) -> Path:
    """The user's folder, whether GeoLife's root, its Data folder or the user itself was named."""
    for path in (geolife / USER, geolife / "Data" / USER, geolife):
        if (path / "Trajectory").is_dir():
            return path
    raise InputError(f"{geolife}: no GeoLife user {USER} there; name the folder that holds {USER}/Trajectory/*.plt")


def digest(geolife: Path) -> str:
    """A hash of the names and sizes of the files of the user and of those beside."""
    own = folder_of(geolife).parent
    files = [path for user in users(geolife) for path in sorted(user.rglob("*")) if path.is_file()]
    told = "\n".join(f"{path.relative_to(own).as_posix()} {path.stat().st_size}" for path in files)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def users(geolife: Path) -> list[Path]:
    """The folders of the paper's user and of those beside it."""
    own = folder_of(geolife)
    return [own, *(p.parent for p in sorted(own.parent.glob("*/Trajectory")) if p.parent != own)]


def model(geolife: Path, order: int = 1) -> FittedModel:
    return model_of(folder_of(geolife), order)


@lru_cache(maxsize=8)
def model_of(user: Path, order: int = 1) -> FittedModel:
    from veilstream.data.fitting import fit_model
    from veilstream.data.sources import read
    from veilstream.data.spec import FitSpec, Recording

    way = Recording(period_s=300.0, bin="mean", gaps="bridge", noise="drop", eps_m=200.0, min_samples=8)
    return fit_model(read([str(user)]), FitSpec.of(way, order=order, hold_out=0.0, cycle="none"))
