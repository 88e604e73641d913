"""The readings behind a model: what limits are about."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average, Instantaneous

STATES = StateSpace("bins", [[1.0], [3.0], [9.0]], ("low", "middle", "high"), "kWh", [2.0, 5.0])
VALUES = np.array([0.0, 1.5, 4.0, 2.5, 1.0, 4.5])  # nobody is ever high
RECORD = Trajectories(np.zeros(6, int), np.array([0, 1, 2, 5, 6, 7]), VALUES[:, None], STATES.encode(VALUES)).recorded()


def test_distances_are_of_the_readings_and_of_the_state_where_there_are_none():
    mean, worst = RECORD.felt(STATES)
    assert mean[0] == pytest.approx([np.abs(VALUES[[0, 1, 4]] - y).mean() for y in (1, 3, 9)])
    assert worst[1] == pytest.approx([np.abs(VALUES[[2, 3, 5]] - y).max() for y in (1, 3, 9)])
    assert mean[2] == pytest.approx(STATES.distances()[2])
    _, most = RECORD.felt(STATES, 0.5)
    assert most[0] == pytest.approx([np.sort(np.abs(VALUES[[0, 1, 4]] - y))[1] for y in (1, 3, 9)])


def test_the_first_reading_of_a_step_is_kept_and_the_latest_steps(monkeypatch):
    monkeypatch.setattr("veilstream.data.trajectories.MOST_STEPS", 3)
    points = np.arange(5.0)[:, None]
    record = Trajectories(np.array([1, 0, 0, 0, 1]), np.array([7, 3, 3, 4, 9]), points, np.zeros(5, int)).recorded()
    assert record.points[:, 0].tolist() == [3.0, 0.0, 4.0]
    assert record.stream.tolist() == [0, 1, 1] and record.step.tolist() == [4, 7, 9]


def test_the_course_is_what_a_gateway_meets():
    chain = vs.MarkovChain.fit([[0, 0, 1, 1, 2, 0]], 3)
    replay = RECORD.replay(STATES, chain)
    assert replay.gaps.tolist() == [0, 0, 0, 2, 0, 0]
    assert replay.states.tolist() == STATES.encode(VALUES).tolist()
    second = vs.MarkovChain.fit([[0, 0, 1, 1, 2, 0, 0, 1]], 3, order=2)
    z = RECORD.replay(STATES, second).states
    assert [second.histories[i][0] for i in z] == STATES.encode(VALUES).tolist()
    assert len(second.histories[z[3]]) == 1  # after a gap nothing of the past is known


def test_a_limit_holds_for_the_readings(monkeypatch):
    monkeypatch.setattr("veilstream.data.utility.LEAST_STEPS", 6)
    chain = vs.MarkovChain.fit([STATES.encode(VALUES), [2, 2, 1]], 3)
    felt = Utility.of(chain, STATES, RECORD)
    centres = Utility.of(chain, STATES, RECORD, "states")
    limit = 0.5 * (felt.blind + felt.replay.least(np.ones((3, 3), bool)))
    ours = vs.solve(felt.problem(Average(limit=limit)), replay=felt.replay)
    theirs = vs.solve(centres.problem(Average(limit=limit)))
    assert felt.replay.error(ours.policy) == pytest.approx(limit, rel=0.03)
    assert felt.replay.error(theirs.policy) > limit  # what the earlier meaning promised and did not keep
    with pytest.raises(InputError, match="infeasible"):
        felt.problem(Instantaneous(0.9))
    monkeypatch.setattr("veilstream.data.utility.LEAST_STEPS", 7)
    assert Utility.of(chain, STATES, RECORD).replay is None  # too short a record to say how readings lie
    with pytest.raises(InputError, match="must be one of felt, states"):
        Utility.of(chain, STATES, RECORD, "fluffy")


def test_it_goes_through_a_model_file_and_not_into_a_policys(tmp_path):
    chain = vs.MarkovChain.fit([STATES.encode(VALUES), [2, 2, 1]], 3)
    vs.save(tmp_path / "m.veil", chain=chain, states=STATES, record=RECORD)
    again = vs.load(tmp_path / "m.veil").record
    for name in ("stream", "step", "points", "symbols"):
        assert (getattr(again, name) == getattr(RECORD, name)).all()
    with pytest.raises(InputError, match="does not fit"):
        vs.save(
            tmp_path / "x.veil",
            chain=chain,
            states=STATES,
            record=Trajectories(np.array([0]), np.array([0]), np.array([[1.0]]), np.array([7])).recorded(),
        )
    with pytest.raises(InputError, match="not in order"):
        Trajectories(np.array([0, 0]), np.array([2, 1]), np.zeros((2, 1)), np.zeros(2, np.int64)).checked()
