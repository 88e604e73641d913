"""veil plan: the arithmetic by hand, and rates that were really measured."""

import json
import sys
from dataclasses import replace

import pytest

from gatewaykit import artefact, places
from veilstream.apps.bench.nats_server import nats_command
from veilstream.apps.cli import main
from veilstream.apps.plan import rates
from veilstream.apps.plan.needs import Load, Rates, assumptions, needs, parse_rate
from veilstream.errors import InputError

RATES = Rates(store_per_s=4000, store_bytes=100, solve_s=3.6, places=16, worker_s=1e-4, node_s=2e-4, key_bytes=1000,
              message_bytes=200, message_s=86400)  # fmt: skip


def test_the_arithmetic_by_hand():
    load = Load(users=1_000_000, rate_per_h=12, peak=3, refit_d=30, within_h=8, cores=8, keep_d=30)
    found = needs(load, RATES)
    assert load.peak_per_s == pytest.approx(10_000)
    assert found.gateways == 5  # 10,000 readings/s, 2,000 a gateway
    assert found.gateway_disk_gb == pytest.approx(100 * 3333.333 * 86400 * 30 / 5 / 1e9, rel=1e-4)
    assert (
        found.workers == 2 and found.clusters == 1 and found.node_cores == 4
    )  # 1 and 2 core seconds a second, half busy
    assert found.nats_machines == 1 + 3
    assert found.nats_disk_gb == pytest.approx((1000 * 1e6 + 200 * 3333.333 * 86400) / 1e9, rel=1e-4)
    assert found.refit_core_h == pytest.approx(1000) and found.refit_cores == 125 and found.refit_machines == 16


def test_more_never_needs_less_and_huge_loads_take_several_clusters():
    small, large = (needs(Load(n, 60), RATES) for n in (1000, 10_000_000))
    assert small.gateways == 1 and "enough" in small.advice
    assert large.clusters > 1 and large.node_cores <= 16
    assert all(getattr(large, k) >= getattr(small, k) for k in ("gateways", "workers", "nats_machines", "refit_cores"))


def test_without_a_server_nats_is_not_guessed():
    bare = replace(RATES, worker_s=None, node_s=None, key_bytes=None)
    load = Load(1000, 1)
    assert needs(load, bare).workers is None
    assert any("not measured" in line for line in assumptions(load, bare))
    assert rates.measure(nats=False).worker_s is None


@pytest.mark.parametrize(("text", "per_h"), [("12/h", 12), ("1/min", 60), ("0.2/s", 720), ("48/d", 2), ("5", 5)])
def test_rates_have_units(text, per_h):
    assert parse_rate(text) == pytest.approx(per_h)


@pytest.mark.parametrize("text", ["", "often", "-1/h", "0", "1/year", "1e99", "nan"])
def test_a_rate_that_is_none_is_one_line(text):
    with pytest.raises(InputError, match="is not a rate"):
        parse_rate(text)


@pytest.mark.slow
@pytest.mark.service("nats-server")
def test_the_command_measures_the_policy_it_is_given(tmp_path, monkeypatch, capsys):
    artefact(tmp_path / "p.veil", states=places(), period_s=300.0)
    args = ["veil", "plan", "--users", "5000", "--rate", "12/h", "--policy", str(tmp_path / "p.veil"), "--json"]
    monkeypatch.setattr(sys, "argv", args)
    with pytest.raises(SystemExit) as ended:
        main()
    told = json.loads(capsys.readouterr().out)
    assert not ended.value.code
    assert told["rates"]["store_per_s"] > 100 and told["rates"]["solve_s"] > 0
    assert (told["rates"]["worker_s"] is not None) == (nats_command() is not None)
    assert told["needs"]["gateways"] >= 1 and len(told["assumptions"]) > 5
    for more, said in ((["--peak", "0.5"], "at least 1"), (["--policy", "none.veil"], "no policy file")):
        monkeypatch.setattr(sys, "argv", [*args, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        complaint = capsys.readouterr().err
        assert ended.value.code == 2 and said in complaint and complaint.count("\n") == 1
