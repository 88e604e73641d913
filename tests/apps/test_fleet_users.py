"""Who is who in the sources of a fleet, and what limits say of everybody."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import veilstream as vs
from fleetkit import PLT, QUICK, meter_table, plt_user
from veilstream.apps.fleet import folder as disk
from veilstream.apps.fleet.run import run_fleet
from veilstream.apps.fleet.spec import FleetSpec
from veilstream.apps.fleet.users import read_users
from veilstream.artefact import load
from veilstream.data.limits import mean_limit
from veilstream.data.sources import read
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError


def test_users_of_folders_tables_and_tracks(tmp_path):
    for name in ("000", "001"):
        plt_user(tmp_path / "geolife", name, files=2)
    meter_table(tmp_path / "geolife" / "extra.csv", {"a": 5, "001": 5})
    users, broken = read_users([str(tmp_path / "geolife")])
    assert not broken
    assert [u.name for u in users] == ["000", "geolife/001", "a", "geolife/001-2"]
    assert users[0].readings.n_traces == 2 and users[0].readings.kind == "position"
    (one,) = read_users([str(tmp_path / "geolife" / "000")])[0]  # a user's own folder is one user
    assert one.name == "000"
    long = tmp_path / "long.csv"
    long.write_text("stream,time,value\n" + "".join(f"u{i % 2},2024-01-01 00:{i:02}:00,{i}\n" for i in range(10)))
    assert [u.name for u in read_users([str(long), str(long)])[0]] == ["u0", "u1"]  # a file given twice counts once
    with pytest.raises(InputError, match="no such file"):
        read_users([str(tmp_path / "nowhere")])


def test_one_bad_column_or_file_leaves_the_others(tmp_path):
    table = meter_table(tmp_path / "m.csv", {"a": 6, "b": 6}, columns={"bad": ["1.0", "x?y"], "empty": []})
    users, broken = read_users([table])
    assert sorted(u.name for u in users) == ["a", "b"]
    assert set(dict(broken)) == {"bad", "empty"}
    assert "line 3" in dict(broken)["bad"]
    plain = meter_table(tmp_path / "n.csv", {"a": 6}, columns={"empty": []})
    assert list(dict(read_users([plain])[1])) == ["empty"]
    rows = [f"u{i % 3},2024-01-01 00:{i:02}:00,{'?' if i == 4 else i}" for i in range(12)]
    (tmp_path / "long.csv").write_text("\n".join(["stream,time,value", *rows, "u9,2024-01-01 01:00:00,?"]) + "\n")
    users, broken = read_users([str(tmp_path / "long.csv")])
    assert {u.name for u in users} == {"u0", "u2"} and set(dict(broken)) == {"u1", "u9"}
    assert all("line 6" in line for _, line in broken) and all(u.readings.frame.height == 4 for u in users)
    (tmp_path / "odd.jsonl").write_text('{"stream": "a", "t": 1, "value": 1}\nnot json\n')
    assert list(dict(read_users([str(tmp_path / "odd.jsonl")])[1])) == ["odd"]
    plt_user(tmp_path / "g", "000")
    plt_user(tmp_path / "g", "001", text="\x00\x01 poison")
    plt_user(tmp_path / "g", "002", text=PLT + "47.0,not a number,0,0,1,2008-10-01,00:00:00\n")
    users, broken = read_users([str(tmp_path / "g")])
    assert [u.name for u in users] == ["000"] and set(dict(broken)) == {"001", "002"}


def test_a_bad_user_never_takes_the_name_of_a_good_one(tmp_path):
    plt_user(tmp_path / "g", "a", text="broken")
    table = meter_table(tmp_path / "m.csv", {"a": 40, "b": 40})
    for _ in range(2):  # the second time as well: nothing of hers is removed
        summary = run_fleet([str(tmp_path / "g"), table], tmp_path / "out", QUICK)
        assert set(summary.failed) == {"a (unreadable)"} and {r["user"] for r in summary.rows} == {"a", "b"}
        assert (tmp_path / "out" / "users" / "a" / "policy.veil").is_file()


def test_folder_names_are_safe_and_never_shared(tmp_path):
    names = ["a", "A b", "../up", "a/b", "a_b", "", "x" * 300, "naïve", ".hidden"]
    places = disk.places(tmp_path, names)
    assert len(set(places.values())) == len(names)
    for place in places.values():
        assert place.parent == tmp_path / "users" and re.fullmatch(r"[\w~-]{1,80}", place.name, re.ASCII)


# --- limits ----------------------------------------------------------------------------------------------


def limit_of(spec, unit, blind, least=0.0):
    """For a user in this unit, whose best one release has this error."""
    utility = SimpleNamespace(unit=unit, blind=blind)
    return mean_limit(utility, spec.limits(utility, unit, least)[0]["avg"])


def test_limits_per_unit_and_as_a_share():
    assert FleetSpec().by_default and limit_of(FleetSpec(), "km", 4.0) == 1.0
    both = FleetSpec(avg=("1km", "0.1kWh"))
    assert limit_of(both, "km", 9.0) == 1.0 and limit_of(both, "kWh", 9.0) == 0.1
    mixed = FleetSpec(avg=("50%", "500m"))
    assert limit_of(mixed, "km", 9.0) == 0.5 and limit_of(mixed, "kWh", 0.4) == pytest.approx(0.2)
    with pytest.raises(InputError, match=r"has no limit for users in kWh; add `avg` 0\.1kWh or 25%"):
        FleetSpec(avg=("1km",)).check_units(["km", "kWh"])
    with pytest.raises(InputError, match="one of `avg`, `budget`,"):
        FleetSpec(avg=("1km",), budget=0.1)
    with pytest.raises(InputError, match="a share is for `avg`"):
        FleetSpec(at_most=("10%",))


# --- totals ----------------------------------------------------------------------------------------------


def test_energy_adds_up_unless_told_and_a_power_does_not():
    assert FleetSpec().adds_up("kWh") and FleetSpec().adds_up("Wh")
    assert not FleetSpec().adds_up("kW") and not FleetSpec().adds_up("km") and not FleetSpec().adds_up("")
    assert FleetSpec(keep_total=True).adds_up("") and not FleetSpec(keep_total=False).adds_up("kWh")
    assert not FleetSpec(avg=("1kWh",), feedback="day").adds_up("kWh")
    with pytest.raises(InputError, match="`keep_total` and `feedback` cannot be had together"):
        FleetSpec(avg=("1kWh",), feedback="day", keep_total=True)


@pytest.mark.slow
def test_what_a_fleet_releases_adds_up_to_what_it_read(tmp_path):
    table = meter_table(tmp_path / "m.csv", {"MAC1": 2000, "MAC2": 2000})
    plan = FleetSpec(window=1, points=2, certify=0.0, audit="none", fit=FitSpec(n_states=4, cycle="none", unit="kWh"))
    kept = run_fleet([table], tmp_path / "kept", plan)
    plain = run_fleet([table], tmp_path / "plain", replace(plan, keep_total=False))
    readings = read([table], unit="kWh")
    for row, without in zip(kept.rows, plain.rows, strict=True):
        assert without["total"] is None and abs(row["total"]["off"]) < 1e-3 < abs(row["total"]["off_without"])
        policy = load(tmp_path / "kept" / "users" / row["user"] / "policy.veil")
        own = readings.only(row["user"])
        x = policy.states.encode(own.frame["value"].to_numpy())
        shown = vs.release_many(policy.policy, np.tile(x, (60, 1)), policy.problem, seed=0).y
        off = policy.points.coordinates[shown, 0].sum(1) / own.frame["value"].sum() - 1
        assert abs(off.mean()) < 4 * off.std() / np.sqrt(60) + 2e-3


def test_the_default_limit_is_one_that_can_be_kept_and_one_that_was_asked_for_is_as_asked():
    assert limit_of(FleetSpec(), "kWh", 0.0135, 0.0038) == pytest.approx(0.0038 + 0.25 * (0.0135 - 0.0038))
    assert limit_of(FleetSpec(), "kWh", 0.0135, 0.001) == pytest.approx(0.25 * 0.0135)
    assert limit_of(FleetSpec(avg=("25%",)), "kWh", 0.0135, 0.0038) == pytest.approx(0.25 * 0.0135)
    for bad, says in (("150%", "a share must be from 0% to 100%"), ("0.1", "'0.1' has no unit; write 0.1kWh or 0.1Wh")):
        with pytest.raises(InputError, match=says):
            limit_of(FleetSpec(avg=(bad,)), "kWh", 0.0135)
