"""Names of zones instead of places: who is where, what a wrong name costs, and a policy that says nothing else."""

import json

import numpy as np
import pytest

import veilstream as vs
from veilstream.artefact import load
from veilstream.control.cascade import Behind, Finer
from veilstream.data.states import StateSpace
from veilstream.data.synthetic import city_chain
from veilstream.data.zones import cost_of_names, read_zones
from veilstream.errors import InputError
from veilstream.gateway.audience import AudienceSpec, with_audiences
from veilstream.gateway.core import Core
from veilstream.gateway.home import Home
from veilstream.gateway.space import Space
from veilstream.gateway.store import MEMORY, Store
from veilstream.gateway.wire import Reading

HEAD = "name,lat,lon,radius_m\n"
CITY = HEAD + "home,-47.0,-125.0,300\nwork,-46.972121,-124.918242,900\n"


@pytest.fixture(scope="module")
def zones(tmp_path_factory):
    path = tmp_path_factory.mktemp("zones") / "zones.csv"
    path.write_text(CITY)
    return path


def test_a_state_is_in_the_nearest_zone_that_holds_it_or_away(tmp_path):
    (tmp_path / "z.csv").write_text(HEAD + "a,48.0,11.0,1000\nb,48.009,11.0,1000\n")
    states = StateSpace("places", [[48.0, 11.0], [48.006, 11.0], [48.02, 11.0]], ("x", "y", "z"), "km")
    cost = cost_of_names(states, tmp_path / "z.csv")
    names = list(cost.shown.names)
    assert sorted(names) == ["a", "away", "b"] and cost.unit == "%"
    right = [names[k] for k in cost.by_state.argmin(1)]
    assert right == ["a", "b", "away"] and set(cost.by_state.ravel()) == {0.0, 100.0}
    assert cost.distances_from([[48.0059, 11.0]])[0].tolist() == cost.by_state[1].tolist()
    assert cost.lies_at[names.index("away")] == 2


@pytest.mark.parametrize(
    "text", ["", HEAD, "name,lat\na,1\n", *(HEAD + row for row in ("a,91,0,5", "a,0,0,0", "away,0,0,5", "a,0,0",
             "a,0,0,nan", ",0,0,5", "a,0,0,5\na,1,1,5"))],
)  # fmt: skip
def test_zones_that_cannot_be_read_are_one_line(tmp_path, text):
    (tmp_path / "z.csv").write_text(text)
    with pytest.raises(InputError, match=r"z\.csv") as fault:
        read_zones(tmp_path / "z.csv")
    assert "\n" not in str(fault.value)


def test_zones_are_for_places_and_have_a_cost_of_their_own(tmp_path, zones):
    chain, states = city_chain()
    vs.save(tmp_path / "city.veil", chain=chain, states=states)
    with pytest.raises(InputError, match="right or wrong"):
        vs.solve(tmp_path / "city.veil", avg="5%", show=str(zones), distortion="squared")
    with pytest.raises(InputError, match="for places alone"):
        cost_of_names(StateSpace("bins", [[0.0], [1.0]], ("a", "b"), "kWh", [0.5]), zones)
    with pytest.raises(InputError, match="cannot be read"):
        vs.solve(tmp_path / "city.veil", avg="5%", show=str(tmp_path / "none.csv"))


def test_neighbours_get_names_drawn_from_the_familys_releases_and_nothing_else(tmp_path, zones):
    chain, states = city_chain()
    vs.save(tmp_path / "city.veil", chain=chain, states=states, period_s=300.0)
    family = vs.solve(tmp_path / "city.veil", avg="0.04km", show="states", window=1)
    near = vs.solve(tmp_path / "city.veil", avg="5%", show=str(zones), window=1, behind=family)
    family.save(tmp_path / "family.veil")
    near.save(tmp_path / "near.veil")
    file = load(tmp_path / "near.veil")
    right = file.truth == 0
    joint = Behind(Finer.of(chain, family.policy), near.policy).joint  # m(z, name)
    assert near.distortion == pytest.approx(100 * joint[~right].sum(), rel=1e-9) and 4.99 < near.distortion <= 5.0001
    alone = vs.solve(tmp_path / "city.veil", avg="5%", show=str(zones), window=1)
    assert alone.leakage * 0.999 < near.leakage < family.leakage
    assert near.behind.direct.leakage == pytest.approx(alone.leakage, rel=5e-3)
    spec = AudienceSpec("near", str(tmp_path / "near.veil"))
    spaces = with_audiences({"": Space(load(tmp_path / "family.veil"))}, [spec])
    core = Core(spaces, Store(MEMORY, {name: space.binding for name, space in spaces.items()}))
    core.outlets.append(home := Home(spaces, "veil/status"))
    at = states.coordinates[np.arange(40) % 4].tolist()
    outcomes = core.process([Reading("ann", k, 300 * k, tuple(p)) for k, p in enumerate(at)]).outcomes
    told = [json.loads(o.of("near")[0].message) for o in outcomes]
    assert {m["released"] for m in told} <= {"home", "work", "away"} and len({m["released"] for m in told}) > 1
    assert all(set(m) == {"stream", "t", "released", "leaked_bits"} for m in told)
    sent = {topic: body for _, topic, body in core.unsent()}
    trackers = [json.loads(body) for topic, body in sent.items() if "/device_tracker/" in topic]
    assert len(trackers) == 2 and len({t["device"]["name"] for t in trackers}) == 2
    assert home.owns(next(iter(sent)))
    [zone] = [t for t in trackers if "state_topic" in t]
    assert sent[zone["state_topic"]] == told[-1]["released"].encode() and zone["payload_not_home"] == "away"
    state = json.loads(sent[zone["json_attributes_topic"]])
    assert state["zones"]["in_zones"] == [z for z in [told[-1]["released"]] if z != "away"] and set(state) == {
        "zones", "bits"}  # fmt: skip
    core.close()
