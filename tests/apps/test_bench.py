"""The benchmarks on sizes that take a moment: they run, and they count what they say."""

import json
from functools import partial

import numpy as np
import pytest

import veilstream as vs
from benchmarks import (
    certificates,
    core,
    cycle,
    data,
    felt,
    fleet,
    gateway,
    judge,
    large,
    policies,
    resident,
    survive,
    total,
)
from fleetkit import meter_table
from gatewaykit import NEEDS_MOSQUITTO
from mosquitto import mosquitto_command
from oracles import recorded
from veilcli import bench
from veilstream.audit.spec import JudgeSpec
from veilstream.data.spec import FitSpec
from veilstream.data.synthetic import city


def meters(folder, monkeypatch, **steps):
    """A folder of real data, as benchmarks look for it, with these households."""
    (folder / "smartmeter").mkdir()
    meter_table(folder / "smartmeter" / "m.csv", steps)
    monkeypatch.setenv("VEIL_DATA", str(folder))


@pytest.mark.slow
def test_the_exact_solver_on_the_toy(monkeypatch):
    monkeypatch.setattr(core, "builtin_problem", lambda name, c: vs.builtin_problem("grid2x3-toy", c))
    assert core.bench_sweep()["ratio"] > 1
    found = core.bench_solve()
    assert found["objective"] <= found["belief_greedy_objective"] * 1.005 and 0 <= found["certified_gap"] < 0.01
    assert core.bench_curve()["points"] > 10
    lifted = core.bench_lift()
    assert lifted["objective"] == pytest.approx(lifted["same_problem_order_1"], rel=2e-3)  # the lift changes nothing


def test_a_certified_gap_is_that_of_the_solution(monkeypatch):
    case = "binary", vs.Average(weight=1.0)
    monkeypatch.setattr(certificates, "CASES", {"two states": lambda: vs.builtin_problem(*case)})
    monkeypatch.setattr(certificates, "everybody", lambda: iter(()))
    found = certificates.run()["two states"]
    solution = vs.solve(vs.builtin_problem(*case), certify=True, certify_seconds=2)
    assert found["gap_percent"] == pytest.approx(100 * solution.gap, abs=1e-3) and found["memory"] >= 1


def test_many_states_are_measured_with_a_bound_below_what_is_found(monkeypatch):
    monkeypatch.setattr(large, "FITTED", (16, 40))
    monkeypatch.setattr(large, "alone", lambda n, what: getattr(large, what)(n))
    found = large.run()
    assert set(found) == {"fitted 16", "fitted 40"} and found["fitted 40"]["states"] == 40
    assert all(0 <= row["gap_without_memory"] < 1 and row["leakage"] < row["objective"] for row in found.values())


@pytest.mark.slow
def test_a_table_is_fitted_in_a_process_of_its_own():
    found = data.bench_large_csv(20_000)
    assert found["rows"] == 20_000 and found["states"] > 1 and found["times_a_bare_parse"] > 1


def test_releases_are_counted():
    found = gateway.bench_release_many(100, 5)
    ratio = found["release_many_exact_per_s"] / found["numpy_categorical_per_s"]
    assert found["release_many_exact_ratio"] == pytest.approx(ratio)
    assert gateway.bench_memory(2000)["readings"] == 2000


@pytest.mark.slow
def test_what_runs_for_years_is_small_and_a_command_answers_soon(monkeypatch):
    """By CPU seconds: what else the machine does is not ours."""
    found = resident.bench_start()
    assert found["help_cpu_seconds"] < 0.6 and found["import_cpu_seconds_beyond_numpy"] < 0.15
    monkeypatch.setattr(resident, "MESSAGES", 500)
    if mosquitto_command() is not None:
        served = resident.bench_serving(20_000)
        assert 20 < served["resident_mb_at_the_start"] <= served["resident_mb_at_the_end"] < 75


@pytest.mark.slow
@NEEDS_MOSQUITTO
def test_readings_go_through_a_broker_and_back(monkeypatch):
    monkeypatch.setattr(gateway, "ROUNDS", 1)
    found = gateway.bench_mqtt(400)
    assert found["gateway_per_s"] > 0 and found["gateway_to_echo_ratio"] > 0
    assert found["gateway_cpu_us"] > found["own_cpu_us"] >= 0
    assert found["durable_echo_per_s"] > 0 and found["gateway_to_durable_echo_ratio"] > 0
    assert gateway._latency(100, 1)["answered"] == 1


@pytest.mark.slow
def test_a_fleets_tasks_are_timed(monkeypatch):
    """In this process: what workers do has tests of its own."""
    monkeypatch.setattr(fleet, "STEPS", 300)
    found = fleet.bench_workers("serial", users=1, rounds=1)
    assert found["users"] == 1 and 0 < found["one_worker_cpu_s"] <= found["one_worker_s"] * 1.1


def test_the_command_prints_figures_and_a_failed_verdict_is_exit_code_1(monkeypatch):
    told = {"drill": {"releases": 1234567, "verdict": "ok"}}
    monkeypatch.setattr(data, "run", lambda: told)
    assert json.loads(bench("data", "--json", "-o", "").stdout) == {"data": told}
    assert bench("data", "-o", "").stdout.split() == ["data", "drill", "releases", "1.235e+06", "verdict", "ok"]
    monkeypatch.setattr(data, "run", partial(dict, drill={"verdict": "FAILED"}))
    assert bench("data", "-o", "").returncode == 1


def test_the_table_of_the_documentation_is_that_of_the_figures(monkeypatch):
    """Whoever has figures or a note has a line; what is about all of them stands under the table."""
    row = dict.fromkeys(["plain_loss", "clock_loss", "plain_objective"], 2.0)
    told = {"ann": {**row, "clock_objective": 1.0, "change": -0.5, "phases": 48}, "bob": {"note": "too short"}}
    monkeypatch.setattr(cycle, "run", lambda full=False: {**told, "households": {"how many": 1}})
    head, rule, ann, bob, *below = bench("cycle", "--table", "-o", "").stdout.splitlines()
    assert ann == "| ann | 2.000 | 2.000 | 2.000 | 1.000 | -50.0% | 48 |"
    assert bob == "| bob | too short |  |  |  |  |  |"
    assert {line.count("|") for line in (head, rule, ann, bob)} == {8}
    assert " ".join(below).split() == ["cycle", "households", "how", "many", "1"]


@pytest.mark.slow
def test_what_survives_is_told_of_everybody(tmp_path, monkeypatch):
    """A household that stays as it is keeps its limit and its bits; one too short to try is listed too."""
    monkeypatch.setattr(survive, "BINS", 3)
    meters(tmp_path, monkeypatch, ann=24 * 336, bob=60)
    found = survive.run(full=True)
    assert list(found)[-2:] == ["all", "all, alternate weeks"] and list(found)[:2] == ["ann", "bob"]
    assert found["ann, alternate weeks"]["claim"] == "inside"
    row = found["ann"]
    assert row["held out"] == "12 weeks" and row["felt/limit, fitted"] == pytest.approx(1, abs=0.01)
    assert row["felt/limit, later"] == pytest.approx(1, abs=0.05) and row["claim"] == "inside"
    assert row["bits at most, any data"] > row["bits, later"]
    assert "kept" not in found["bob"] and found["all"]["people and meters"] == 1
    monkeypatch.setenv("VEIL_DATA", str(tmp_path / "none"))
    assert "VEIL_DATA" in survive.run()["data"]["note"]


@pytest.mark.slow
def test_what_is_felt_is_within_the_limit_for_everybody(tmp_path, monkeypatch):
    """Mean over repeats, and no reading beyond --max; the earlier meaning tells less and is felt farther off."""
    meters(tmp_path, monkeypatch, ann=24 * 60, bob=30)
    monkeypatch.setattr(felt, "OPTIONS", FitSpec(n_states=6, cycle="none"))
    found = felt.run()
    row = found["ann"]
    assert row["felt/limit"] == pytest.approx(1, abs=4 * row["spread"] / felt.REPEATS**0.5)
    assert row["max, beyond it"] == row["max, beyond it, repeats"] == 0
    assert row["max@99%, beyond it"] <= 0.01 and row["max@99%"] <= row["max"]
    assert row["states, felt/limit"] > 1
    assert "note" in found["bob"]
    assert found["all"]["verdict"] == "ok" and found["all"]["people and meters"] == 1


@pytest.mark.slow
def test_a_kept_total_is_kept_in_repeats(tmp_path, monkeypatch):
    meters(tmp_path, monkeypatch, ann=24 * 60, bob=30)
    monkeypatch.setattr(total, "OPTIONS", FitSpec(n_states=6, cycle="none"))
    monkeypatch.setattr(total, "NEAR", 0.02)  # of so short a record
    found = total.run()
    row = found["ann"]
    assert abs(row["off"]) < 1e-3 < abs(row["off without"])
    assert row["off, repeats"] == pytest.approx(row["off"], abs=4 * row["spread"] / felt.REPEATS**0.5)
    table = np.genfromtxt(tmp_path / "smartmeter" / "m.csv", delimiter=",", names=True)
    assert row["total"] == pytest.approx(table["ann"].sum()) and "note" in found["bob"]
    assert found["all"]["verdict"] == "ok" and found["all"]["meters"] == 1


def test_a_course_beyond_a_limit_counts_releases():
    replay = recorded([np.array([0, 1])], [np.zeros(2, int)], [np.array([[0.0, 2.0], [1.0, 0.5]])])
    assert replay.beyond(np.ones(2)).distances.tolist() == [[0, 1], [0, 0]]


@pytest.mark.slow
def test_policies_of_the_paper_and_of_a_meter(tmp_path, monkeypatch):
    meters(tmp_path, monkeypatch, A=700)
    monkeypatch.setattr(policies, "CHAINS", ("grid2x3-toy",))
    found = policies.run()
    assert found["grid2x3-toy"]["objective, weight 2"] == pytest.approx(1.2319, rel=2e-3)  # reference.json
    assert found["grid2x3-toy"]["bits, limit 1"] == pytest.approx(0.502, rel=4e-3)
    meter = found["A"]
    told, close = ([meter[f"{what}, {share:.1%}"] for share in policies.SHARES] for what in ("told", "felt/limit"))
    assert told[0] > told[1] > told[2] > 0 and max(close) <= 1.001
    assert 0 < meter["objective, weight 0.25"] < meter["objective, weight 1"] < meter["objective, weight 4"]


def rows_of(source, n):
    return [f"{t:.0f},{lat:.6f},{lon:.6f}" for t, (lat, lon) in zip(source.t_s[:n], source.points[:n], strict=True)]


def test_the_public_benchmark_takes_whoever_is_in_the_folder(tmp_path, monkeypatch):
    """A track of the city that ships; its row is that of its fitted chain, its hash that of the file."""
    source = city(400)
    (tmp_path / "tracks").mkdir()
    (tmp_path / "tracks" / "ann.csv").write_text("time,lat,lon\n" + "\n".join(rows_of(source, 400)) + "\n")
    monkeypatch.setenv("VEIL_DATA", str(tmp_path))
    monkeypatch.setattr(judge, "SOURCES", {})
    spec = JudgeSpec(mechanism=["grid=5km"], certify_seconds=0.2, streams=20, steps=60)
    found = judge.run(full=True, spec=spec)
    assert set(found) == {"ann: grid 5 km", "ann: sha-256 of what is judged", "all"}
    assert found["all"]["verdict"] == "ok"
    row = found["ann: grid 5 km"]
    assert row["floor"] <= row["ours"] < row["bits"]
    again = next(judge.recorded())[2]
    (tmp_path / "tracks" / "ann.csv").write_text("time,lat,lon\n" + "\n".join(rows_of(source, 399)) + "\n")
    assert next(judge.recorded())[2] != again
