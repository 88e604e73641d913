"""`vs.ReleaseTransformer`: fit, solve and release as a step of a scikit-learn pipeline."""

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from veilstream.apps.verbs.release import Releases, check_fits, releases
from veilstream.data.fit import fit
from veilstream.data.frames import NAME, is_table, tabled
from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.database import MEMORY
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.solvers.api import solve


class ReleaseTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A step of a scikit-learn Pipeline that lets releases pass instead of readings.

    `fit` learns the model and solves for the limit; `transform` gives a row for every row, as scikit-learn asks: the
    time of its step, the release, `leaked_bits`. Rows of one step share its one release.

        >>> import pandas as pd, veilstream as vs
        >>> from sklearn.pipeline import make_pipeline
        >>> from veilstream.data.synthetic import household
        >>> home = household(600)
        >>> df = pd.DataFrame({"time": home.t_s.astype(int), "kWh": home.points[:, 0]})
        >>> pipeline = make_pipeline(vs.ReleaseTransformer(avg="0.2kWh", fit_options={"n_states": 3}))
        >>> shared = pipeline.fit(df).transform(df)
        >>> list(shared.columns), len(shared)
        (['time', 'kWh', 'leaked_bits'], 600)
        >>> shared.equals(pipeline.transform(df))      # the same step gets the same release
        True

    What would not be honest is refused. **One draw per step**: a fitted transformer remembers what it released, and a
    row of an earlier step that it has not released is refused, so that shuffled folds of a time series fail. Every new
    `fit` (a clone, a fold of a cross-validation) draws anew for the same rows, and whoever sees two of them sees two
    draws: give `store`, a file that all of them share and that `veil release` knows, wherever results leave the house.
    A fitted transformer without a store cannot be copied or pickled: the copy would draw a second time.

        avg, max, weight, budget    the limit, as `solve` takes it
        store           the file that remembers; None: the fitted object does
        ceiling         bits per stream beyond which releases do not look at the data
        columns, unit, tz               how to read the table, as `fit` takes them
        fit_options, solve_options      what else `fit` and `solve` are told
    """

    def __init__(
        self,
        avg: str | float | None = None,
        max: str | float | None = None,
        weight: float | None = None,
        budget: float | None = None,
        store: str | os.PathLike[str] | None = None,
        ceiling: float | None = None,
        columns: str | Mapping[str, str] | None = None,
        unit: str | None = None,
        tz: str | None = None,
        fit_options: Mapping[str, Any] | None = None,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.avg, self.max, self.weight, self.budget = avg, max, weight, budget
        self.store, self.ceiling = store, ceiling
        self.columns, self.unit, self.tz = columns, unit, tz
        self.fit_options, self.solve_options = fit_options, solve_options

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the model of these readings and the policy for the limit; nothing is drawn."""
        _check_table(X)
        readings, shape = tabled(X, **self._reading())
        self.model_ = fit(readings, **self._reading(), **(self.fit_options or {}))
        layout = shape.layout
        own = [layout.lat, layout.lon] if self.model_.states.is_map else [layout.value or "value"]
        times = [] if shape.index is not None else [layout.time]
        self._names = [*times, *([layout.stream] if layout.stream else []), *own, "leaked_bits"]
        limit = {"avg": self.avg, "max": self.max, "weight": self.weight, "budget": self.budget}
        self.solution_ = solve(self.model_, **limit, **(self.solve_options or {}))  # type: ignore[arg-type]
        self._memory = None if self.store is not None else self._core(Space(self.solution_.artefact, self.ceiling))
        return self

    def transform(self, X: Any) -> Any:
        """A row of released values for every row; the same again for steps that were released before."""
        check_is_fitted(self, "solution_")
        _check_table(X)
        readings, shape = tabled(X, **self._reading())
        if readings.frame.height != len(X) or shape.layout.wide:
            raise InputError(f"{NAME}: every row must be one reading, with a time and a value, to get one release")
        space = Space(self.solution_.artefact, self.ceiling)
        check_fits(readings, space)
        core = self._memory or self._core(space)
        try:
            found = releases(core, readings)
        finally:
            if self._memory is None:
                core.close()
        _check_all(found, readings.frame.height)
        order = readings.frame.with_row_index("row").sort("t", maintain_order=True)["row"].to_numpy()
        rows = np.empty(len(order), np.int64)
        rows[order] = np.arange(len(order))
        return shape.filled(*found.columns(space, shape.layout, rows.tolist()))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns that `transform` gives."""
        check_is_fitted(self, "solution_")
        return np.array(self._names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solution_")

    def __getstate__(self) -> dict[str, Any]:
        if getattr(self, "_memory", None) is not None:
            raise InputError(
                "a fitted transformer without a store cannot be copied: the copy would draw a second time for the same "
                "steps; give `store`"
            )
        return dict(super().__getstate__())

    def _core(self, space: Space) -> Core:
        place = MEMORY if self.store is None else self.store
        return Core({"": space}, Store(place, {"": space.binding}), Serving())

    def _reading(self) -> dict[str, Any]:
        return {"columns": self.columns, "unit": self.unit, "tz": self.tz}


def _check_table(X: Any) -> None:
    if not is_table(X) or isinstance(X, Mapping):
        raise InputError(f"X must be a DataFrame with a column or index of times, found a {type(X).__name__}")


def _check_all(found: Releases, rows: int) -> None:
    """Raises where a row got no release; which ones is public."""
    if "late" in found.refused:
        raise InputError(
            f"{found.refused['late']:,} rows lie before steps that are released already: steps are released in order "
            "of time, each once; transform earlier rows first"
        )
    if len(found.told) < rows:
        why = ", ".join(f"{n:,} {name}" for name, n in found.refused.items()) or "the stream is silent there"
        raise InputError(f"{rows - len(found.told):,} rows have no release ({why}), and a pipeline needs one for each")
