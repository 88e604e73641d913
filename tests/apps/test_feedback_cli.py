"""`--feedback` as a user types it: from a meter's readings to releases whose mean is kept."""

import csv
import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from veilcli import veil

LIMIT = 0.08
pytestmark = pytest.mark.slow


def meter(path, days, start=datetime(2023, 1, 2), restless=False, seed=0):
    """Half-hourly kWh with evenings; restless: on and off around the clock, as no evening was."""
    rng, lines, level = np.random.default_rng(seed), ["time,kWh"], 0.2
    for i in range(48 * days):
        on = (i // 3) % 2 if restless else 34 <= i % 48 < 44
        level = 0.6 * level + 0.4 * (0.15 + 0.5 * on + rng.exponential(0.1))
        lines.append(f"{(start + timedelta(minutes=30 * i)).isoformat()},{level:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("feedback")
    model, policy = folder / "m.veil", folder / "p.veil"
    data = meter(folder / "m.csv", 60)
    assert veil("fit", data, "--states", 6, "--cycle", "none", "--hold-out", "none", "-o", model).returncode == 0
    done = veil("solve", model, "--avg", f"{LIMIT}kWh", "--feedback", "day", "--window", 1, "-o", policy, "--json")
    assert done.returncode == 0, done.stderr
    return folder, policy, json.loads(done.stdout)


def test_solve_says_what_is_promised(made):
    _, _, told = made
    feedback = told["feedback"]
    assert feedback["every"] == 48 and feedback["limit"] == LIMIT and feedback["promised"]
    assert len(feedback["rungs"]) >= 5 and 0 < feedback["first"] < len(feedback["rungs"])
    assert told["record"]["moves"] > 0 and sum(told["record"]["rungs"]) == pytest.approx(1)
    assert told["record"]["charged"] == pytest.approx(told["record"]["leakage"], rel=0.2)
    assert told["raw_distortion"] <= 1.1 * LIMIT


def test_the_mean_is_kept_in_a_house_that_became_restless(made):
    """Felt, on data that the model has never seen; the rung is a column of what is released."""
    folder, policy, told = made
    data = meter(folder / "later.csv", 120, datetime(2023, 6, 5), restless=True, seed=1)
    true = np.array([float(r["kWh"]) for r in csv.DictReader(data.open())])

    def felt(policy):
        done = veil("release", policy, data, "--format", "csv")
        assert done.returncode == 0, done.stderr
        rows = list(csv.DictReader(done.stdout.splitlines()))
        return np.abs(np.array([float(r["released"]) for r in rows]) - true), rows

    far, rows = felt(policy)
    assert len({r["rung"] for r in rows}) >= 3
    bound = LIMIT + told["feedback"]["overshoot"] / len(rows)
    assert np.minimum(far, told["feedback"]["largest_distance"]).mean() <= bound
    plain = folder / "plain.veil"
    assert veil("solve", folder / "m.veil", "--avg", f"{LIMIT}kWh", "--window", 1, "-o", plain).returncode == 0
    without, _ = felt(plain)
    assert without.mean() > 1.1 * LIMIT > far.mean()


def test_audit_and_report_say_what_became_of_the_moves(made):
    folder, policy, _ = made
    data = meter(folder / "again.csv", 20, datetime(2023, 6, 5), seed=2)
    done = veil("audit", policy, "--data", data, "--quick")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"Its limit is {LIMIT:.3g} kWh: feedback moved it" in said and "its meter charged" in said
    few = ["--option", "points=3", "--option", "seconds=0", "--audit", "none"]
    done = veil("report", policy, "--data", data, "-o", folder / "r.html", *few)
    assert done.returncode == 0, done.stderr
    page = (folder / "r.html").read_text()
    assert f"A limit of {LIMIT:.3g} kWh on the mean is followed by feedback: after every day (48 steps)" in page
    assert "Promised: whatever the person does, over 52 days the error is at most" in page


def test_no_ceiling_is_passed_and_what_did_not_look_is_said(made):
    """The first line used to stand at the whole start charge of the ladder, beyond the ceiling, and nobody said so."""
    folder, policy, _ = made
    lines = (folder / "m.csv").read_text().splitlines()[:301]
    done = veil("release", policy, "--no-store", "--ceiling", 20, "--format", "jsonl", input="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    bits = [json.loads(line)["leaked_bits"] for line in done.stdout.splitlines()]
    assert len(bits) == 300 and max(bits) <= 20 and bits == sorted(bits)
    assert bits[0] <= np.log2(6) and bits[10] < 10  # states: 6
    blind = sum(b == 20 for b in bits)
    assert f"! {blind} of 300 steps were released without looking at the data" in done.stderr
    assert "--ceiling 20 bits" in done.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--lambda", "5", "--feedback", "day"], "mean limit"),
        (["--avg", "0.08kWh", "--feedback", "1min"], "shorter than a step of 30 min"),
        (["--avg", "0.08kWh", "--feedback", "often"], "--feedback"),
        (["--avg", "0.001kWh", "--feedback", "day"], "no release has a mean error below 0.0"),
    ],
)
def test_what_cannot_be_kept_is_one_line(made, flags, says):
    folder, _, _ = made
    done = veil("solve", folder / "m.veil", *flags)
    assert done.returncode == 1 or done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_a_builtin_chain_counts_steps():
    done = veil("solve", "builtin:grid2x3-toy", "--avg", "0.3", "--feedback", "100", "--window", 1)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0 and "after every 100 steps" in said and "over 5,200 steps the error is at most" in said
    assert "of your recorded readings lie farther" not in said  # rung 0 shows the truth
    done = veil("solve", "builtin:grid2x3-toy", "--avg", "0.3", "--feedback", "week")
    assert done.returncode and "number of steps" in done.stderr


def test_a_mean_limit_may_be_a_share_of_what_revealing_nothing_costs(made):
    folder, _, _ = made
    told = [
        json.loads(veil("solve", folder / "m.veil", "--avg", share, "--window", 1, "--json").stdout)
        for share in ("20%", "40%", "100%")
    ]
    low, high, all_of_it = (t["raw_distortion"] for t in told)
    assert high == pytest.approx(2 * low, rel=0.02) and all_of_it == pytest.approx(5 * low, rel=0.02)
    assert told[2]["leakage"] == pytest.approx(0, abs=1e-3)
