"""Pictures of models and people: every place that matters is on them, and can be told from the others."""

import numpy as np

from veilstream.apps.report.layout import crowd, east_north_km
from veilstream.apps.report.plots import MAX_LABELS, fit_figure
from veilstream.data.states import StateSpace


def town(n, far):
    """n places within two kilometres, the most visited one that many kilometres off, and one much farther."""
    rng = np.random.default_rng(0)
    near = 39.9 + rng.uniform(-0.01, 0.01, (n, 2)) * (1, 1) + (0, 76.4)
    away = np.array([[39.9 + far / 111.2, 116.3], [41.5, 118.5]])
    law = np.r_[np.full(n, 0.4 / n), 0.59, 0.01]
    names = tuple(f"stop {i}" for i in range(n + 2))
    return StateSpace("stops", np.r_[near, away], names, "km"), law


def test_the_enlarged_part_shows_the_most_visited_place():
    """Issue 27: it was the crowded middle, wherever she spends her time."""
    for far in (0.5, 8.0, 14.0):
        states, law = town(20, far)
        near = crowd(east_north_km(states), law)
        assert near is None or near[law.argmax()]
        assert near is not None or far > 8  # too far from the crowd to be in one picture with it
        if near is not None:
            assert near.sum() >= 12 and not near[-1]


def test_a_model_of_many_states_is_labelled_with_the_most_visited():
    states, law = town(60, 0.5)
    figure = fit_figure(states, np.eye(62) * 0.9 + np.eye(62, k=1) * 0.1, law, "a person")
    overview, enlarged, _ = figure.axes[:3]
    said = {text.get_text() for ax in (overview, enlarged) for text in ax.texts}
    assert "60" in said and "61" in said and len(said) > MAX_LABELS / 2
