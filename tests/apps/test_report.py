"""The report: its numbers against the solver's, what it must not contain, and that it cannot be broken into."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

import report_pages
from real_data import GEOLIFE, needs_geolife
from veilcli import veil
from veilstream.apps.report.content import audited, collect, command_of, facts, table_rows
from veilstream.apps.report.page import embed, payload, render
from veilstream.apps.report.points import Elsewhere, Rival, curve_constraint, example_steps, mean_channel, stretch
from veilstream.apps.report.words import chain_card, verdict
from veilstream.apps.specs import ReportSpec
from veilstream.artefact import load, save
from veilstream.audit.source import Recorded
from veilstream.audit.tables import sheets
from veilstream.control.controller import Controller
from veilstream.control.evaluate import evaluate
from veilstream.control.replay import ReplayResult
from veilstream.data.synthetic import city
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Both, Instantaneous, joint
from veilstream.solvers import Point, solve

pytestmark = pytest.mark.slow
QUICK = ReportSpec(points=5, seconds=1.0)


@pytest.fixture(scope="module")
def folder():
    return report_pages.FOLDER


@pytest.fixture(scope="module")
def town():
    return report_pages.town()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_numbers_are_the_solvers(town):
    _, _, solution, content = town
    own = content.own
    assert own.point.leakage == pytest.approx(solution.leakage, rel=1e-6)
    assert own.point.distortion == pytest.approx(solution.distortion, rel=1e-6)
    assert 0 < own.point.leakage_lower <= own.point.leakage
    assert all(s.point.leakage_lower <= s.point.leakage + 1e-9 for s in content.spots)
    d = [s.point.distortion for s in content.spots]
    assert d == sorted(d) and len(d) >= 4
    ours, *others = content.own.rivals
    assert ours.label == "this policy"
    for b in others:
        if b.leakage is not None:
            assert b.distortion <= own.point.distortion * 1.001
            assert b.leakage > own.point.leakage_lower - 3 * b.leakage_se, b.label


def test_the_verdict_says_its_levels_and_its_bound(town):
    content = town[3]
    headline, _ = verdict(content)
    assert "% less than the truth" in headline and "km on average" in headline
    assert (
        headline.index("identifies the place in")
        < headline.index("an error of")
        < headline.index("less than the truth")
    )
    rows = {label.strip(): (value, note) for label, value, note in facts(content.own)}
    for label, level in (("at least", "proved"), ("leakage", "computed exactly"), ("identified", "estimated with")):
        assert level in rows[label][1]
    assert float(rows["at least"][0]) <= float(rows["leakage"][0])
    assert all(f'<td data-head="value">{value}</td>' in render(content) for value, _ in rows.values())


def test_the_page_is_whole_and_strict(town):
    page = render(town[3])
    assert len(page) < 5e6
    assert "PRIVATE" in page and "{{" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    csp = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in csp and "unsafe" not in csp
    assert not re.search(r"<[^>]+ (on\w+|style)=", page.split("<script", 1)[0])
    assert data_of(page)["true"] == stretch([town[0].path], 288).tolist()

    class Balance(HTMLParser):
        open = []  # noqa: RUF012

        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "link", "input", "br"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(page)
    assert not parser.open


def test_a_shareable_page_holds_no_recorded_trace_and_no_path(town):
    source, artefact, _, _ = town
    content = collect(
        artefact, Recorded.symbols(artefact, [source.path]), ReportSpec(shareable=True, points=3, seconds=0.1, seed=5)
    )
    page = render(content)
    drawn = data_of(page)["true"]
    assert "PRIVATE" not in page and "Shareable" in page
    assert "alice" not in page and "f00d" not in page
    expected = stretch([artefact.chain.sample(2880, seed=5)[0]], 288)
    assert drawn == expected.tolist()
    assert drawn != stretch([source.path], 288).tolist()
    assert not any("recorded" in s.title for s in sheets(content.audit))
    for lat, lon in artefact.states.coordinates:  # places only relative to each other
        assert f"{lat:.3f}" not in page and f"{lon:.3f}" not in page


def test_the_posterior_is_a_law_and_the_channel_that_of_the_policy(town):
    _, artefact, solution, content = town
    own = next(s for s in payload(content)["spots"] if s["l"] == pytest.approx(content.own.point.leakage, rel=1e-4))
    n = len(content.names)
    posterior = np.frombuffer(base64.b64decode(own["posterior"]), np.uint8).reshape(-1, n)
    assert len(posterior) == len(content.path)
    assert np.abs(posterior.sum(1).astype(int) - 255).max() <= n
    channel, level = mean_channel(artefact.chain, solution.policy)
    assert level == "computed exactly"
    assert channel.sum(1) == pytest.approx(np.ones(n))
    pi, d = artefact.chain.stationary, artefact.problem.distortion
    assert (joint(pi, channel) * d).sum() == pytest.approx(solution.distortion, rel=0.02)


def test_values_limits_at_every_step_and_builtin_chains(folder):
    content = report_pages.home()
    drawn = payload(content)
    assert drawn["places"] is None and drawn["unit"] == "kWh"
    assert any("does not keep the limit" in b.note for b in content.own.rivals)
    assert "kWh" in render(content)
    problem = builtin_problem("binary", Instantaneous(1))
    save(folder / "flip.veil", Controller.of_table(np.full((2, 2), 0.5)), problem=problem)
    flip = load(folder / "flip.veil")
    data = Recorded.symbols(flip, [np.array([0, 1, 1, 0])])
    content = collect(flip, data, ReportSpec(points=3, seconds=0.1, audit="none"))
    assert "next to nothing" in verdict(content)[0]
    assert "<svg" not in render(content)  # drawn by the script


def test_the_curve_keeps_the_limit_at_every_step():
    limit = Instantaneous(2)
    assert curve_constraint(limit) == Both(Average(weight=1.0), limit)
    assert curve_constraint(Average(limit=3)) == Average(weight=1.0)


def test_an_operating_point_agrees_with_simulation():
    problem = builtin_problem("grid4x4-q2", Average(limit=1.2))
    policy = solve(problem, window=1).policy
    found, seen = Point.of(problem, policy), evaluate(problem, policy)
    assert found.distortion == pytest.approx(seen.distortion, abs=4 * seen.distortion_se)
    assert found.leakage >= seen.leakage - 4 * seen.leakage_se


def test_the_stretch_has_the_most_moves():
    quiet, lively = np.zeros(50, int), np.array([0] * 20 + [1, 0, 1, 0, 2] + [0] * 20)
    found = stretch([quiet, lively], 10)
    assert len(found) == 10 and (np.diff(found) != 0).sum() == 6
    assert len(stretch([np.array([3])], 10)) == 1


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a & \"b\" 'c'"]
)
def test_names_cannot_become_markup(name):
    text = embed({"name": name})
    assert "<" not in text and ">" not in text and json.loads(text)["name"] == name


def test_the_command_and_its_refusals(town, folder):
    out = folder / "out" / "report.html"
    args = [
        "report",
        folder / "city.veil",
        "--shareable",
        "-o",
        out,
        "--option",
        "points=3",
        "--option",
        "seconds=0.1",
        "--json",
    ]
    args += ["--audit", "none"]
    code, printed, complaint = veil(*args)
    assert code == 0, complaint
    result = json.loads(printed)
    assert result["bytes"] == out.stat().st_size and result["private"] is False
    assert out.stat().st_mode & 0o077 == 0
    save(folder / "model.veil", chain=town[0].chain, states=town[0].states)
    for args, said in (
        (["report", folder / "none.veil", "--shareable"], "no policy file"),
        (["report", folder / "city.veil"], "--data"),
        (["report", folder / "model.veil", "--shareable", "-o", out], "without a policy"),
        (["report", folder / "city.veil", "--shareable", "-o", folder], "is a folder"),
        (["report", folder / "city.veil", "--shareable", "-o", "/proc/nowhere/r.html"], "cannot be written"),
    ):
        code, _, complaint = veil(*args)
        assert code == 2 and said in complaint and complaint.count("\n") == 1, complaint


@needs_geolife
def test_a_page_of_real_traces_is_small(folder):
    """The paper's model of user 016, with the account of its cleaning; study-only choices are followed."""
    data, model, policy = GEOLIFE / "016", folder / "g.veil", folder / "gp.veil"
    study = [f"--option={text}" for text in ("gaps=bridge", "noise=drop", "bin=mean")]
    for args in (
        ["fit", data, *study, "-o", model, "--json"],
        ["solve", model, "--lambda", "0.1", "-o", policy, "--json"],
    ):
        assert veil(*args)[0] == 0
    out = folder / "g.html"
    code, printed, complaint = veil(
        "report", policy, "--data", data, "-o", out, "--option", "points=3", "--option", "seconds=0.1", "--json"
    )
    assert code == 0, complaint
    told = json.loads(printed)
    assert told["private"] and told["bytes"] < 5e6
    page = out.read_text()
    assert "89,272 readings in 51 traces" in page and "study only" in page
    for lat, lon in load(policy).states.coordinates:
        assert f"{lat:.3f}" not in page and f"{lon:.3f}" not in page


def test_a_model_without_a_policy_is_refused(town, folder):
    save(folder / "model.veil", chain=town[0].chain, states=town[0].states)
    model = load(folder / "model.veil")
    with pytest.raises(InputError, match="without a policy"):
        collect(model, Recorded.symbols(model, [town[0].path]), QUICK)


def test_the_audit_is_in_the_page_and_a_failed_claim_is_loud(town, folder):
    source, artefact, solution, content = town
    assert content.audit.stands and [s.title.split(",")[0] for s in sheets(content.audit)] == [
        "Who knows chain and policy",
        "Who knows chain and policy",
        "At equal error: bits and error in the long run",
    ]
    page = render(content)
    assert (
        "<strong>" not in page and "as claimed." in page and "all the data given" in page and "planar-laplace" in page
    )
    assert page.count("<caption>") == 4
    half = {"solution": {"leakage": solution.leakage / 2, "distortion": solution.distortion, "level": "proved"}}
    save(folder / "boast.veil", solution.policy, problem=artefact.problem, states=source.states,
         period_s=source.period_s, provenance=half)  # fmt: skip
    boast = load(folder / "boast.veil")
    found = audited(boast, Recorded.nothing(boast), ReportSpec())
    assert found.stands is False
    assert "THE CLAIM FAILS." in render(replace(content, audit=found))


def test_an_audit_that_cannot_be_says_why(town):
    assert "too short" in audited(town[1], Recorded.symbols(town[1], [np.array([0, 1])]), ReportSpec())
    assert audited(town[1], Recorded.nothing(town[1]), ReportSpec(audit="none")) == "No audit was asked for."
    with pytest.raises(InputError, match="quick, full, none"):
        ReportSpec(audit="thorough")


def test_every_point_of_the_slider_has_its_command(town):
    content = town[3]
    assert content.own.command == "veil fit /home/alice/secret"  # what the file says made it
    others = [s.command for s in content.spots if not s.own]
    assert others and all(c.startswith("veil solve MODEL --weight ") for c in others)
    assert all("--max 0.6kWh" in s.command for s in report_pages.home().spots if not s.own)
    assert "alice" not in command_of(content.artefact, None, shareable=True)


@pytest.fixture(scope="module")
def felt_town(town):
    """The same with the readings themselves, 300 m around their places, and a record that starts often."""
    source, artefact, _, _ = town
    rng = np.random.default_rng(3)
    step = np.arange(600) + 50 * (np.arange(600) // 20)
    points = source.states.coordinates[source.path[:600]] + rng.normal(0, 0.003, (600, 2))
    record = Trajectories(np.zeros(600, int), step, points, source.path[:600]).recorded()
    replay = record.replay(source.states, artefact.chain)
    data = Recorded.symbols(artefact, [source.path[:600]])
    data = replace(data, replay=replay, record=replay.whole(artefact.policy, artefact.chain))
    return replay, collect(artefact, data, replace(QUICK, points=3, seconds=0.2))


def test_what_is_felt_on_the_record_is_said_first_at_every_point(felt_town):
    replay, content = felt_town
    own = content.own
    assert own.felt == pytest.approx(replay.error(own.point.policy)) and own.felt > own.point.distortion
    headline, _ = verdict(content)
    assert f"on your recorded data releases have an error of {own.felt:.3g} km on average" in headline
    record = own.point.record
    assert f"{100 * (1 - record.bits / replay.truth(content.artefact.chain)):.0f} % less than the truth" in headline
    first, *_ = rows = facts(own)
    assert first == ["error", f"{own.felt:.4f}", "km on average, on your recorded data"]
    assert ["  long run", f"{own.point.distortion:.4f}", "km, under the fitted chain"] in rows
    for spot in content.spots:
        assert spot.felt == pytest.approx(replay.error(spot.point.policy))
        assert spot.point.record.bits >= 0
    page = render(content)
    assert f"on your recorded data releases have an error of {own.felt:.3g} km on average" in page
    assert f"\nOn your recorded data a release had an error of {own.felt:.3g} km" in content.audit.words


def test_the_table_of_other_ways_is_that_of_each_point(felt_town):
    """With less effort elsewhere, within a tenth of what is solved for at the policy itself."""
    _, content = felt_town
    rows = {s["d"]: s["rivals"] for s in payload(content)["spots"]}
    assert len({json.dumps(r) for r in rows.values()}) == len(content.spots)
    for spot in content.spots:
        first, *others = spot.rivals
        assert first.label == ("this policy" if spot.own else "this point")
        assert first.leakage == spot.point.leakage
        assert all(b.distortion <= spot.point.distortion * 1.001 for b in others if b.distortion is not None)
    problem, own = content.artefact.problem, content.own
    for rival, exact in zip(Elsewhere.of(problem, 0).at(own.point), own.rivals, strict=True):
        assert (rival.leakage is None) == (exact.leakage is None)
        if rival.leakage is not None:
            near = 4 * np.hypot(rival.leakage_se, exact.leakage_se)
            assert rival.leakage == pytest.approx(exact.leakage, rel=0.1, abs=max(near, 0.002))


def test_a_shareable_page_tells_what_the_file_says_was_felt(town, folder):
    source, artefact, solution, _ = town
    record = ReplayResult(0.75, 0.0, 0.3, 0.001, 20)
    said = {"solution": solution.to_json() | record.to_json()}
    save(folder / "said.veil", solution.policy, problem=artefact.problem, states=source.states, provenance=said,
         period_s=source.period_s)  # fmt: skip
    said = load(folder / "said.veil")
    content = collect(said, Recorded.nothing(said), ReportSpec(shareable=True, points=3, seconds=0.1, audit="none"))
    assert "on your recorded data releases have an error of 0.75 km on average" in verdict(content)[0]
    assert [s.felt for s in content.spots if not s.own] == [None] * (len(content.spots) - 1)


def test_public_points_are_on_the_map_and_have_columns_of_their_own(tmp_path):
    source = city(600, seed=2)
    utility = Utility.of(source.chain, source.states, show="1km")
    solution = solve(utility.problem(Average(weight=0.5)), window=1)
    parts = {"states": source.states, "points": utility.points, "period_s": source.period_s}
    art = save(tmp_path / "p.veil", solution.policy, problem=solution.problem, **parts)
    content = collect(art, Recorded.symbols(art, [source.path]), ReportSpec(points=3, seconds=0.1, audit="none"))
    drawn = payload(content)
    shown, n = drawn["shown"], len(utility.points)
    assert len(shown["names"]) == len(shown["places"]) == n and len(shown["at"]) == n
    for place, state in zip(shown["places"], shown["at"], strict=True):  # crosses lie where the nearest circle is
        away = np.hypot(*(np.array(drawn["places"]) - place).T)
        assert away[state] == pytest.approx(away.min(), abs=0.01) and away.min() < 0.8
    assert len(base64.b64decode(drawn["spots"][0]["channel"])) == len(source.states) * n
    assert max(drawn["spots"][0]["released"]) < n
    page = render(content)
    assert f"{n} points of a public grid" in page
    assert not any(name.split()[0] in page for name in utility.points.names)  # no coordinates on the earth


def test_an_example_is_a_day_long():
    """Six days of half hours on a phone are a blue bar."""
    assert [example_steps(s) for s in (None, 60.0, 300.0, 1800.0, 3600.0, 86_400.0)] == [48, 288, 288, 48, 24, 48]
    assert len(report_pages.home().path) == example_steps(report_pages.home().artefact.period_s)


def test_where_it_comes_from_is_told_in_words(town):
    page = render(town[3])
    assert "data sha-256" in page and "data_sha256" not in page
    assert not re.search(r"(?<!--)weight \d+\.\d{6}", page)
    assert ("constraint", "average <= 0.5 km") in chain_card(town[1])
    assert "identifies the place in" in page and "names the" not in page
    assert "veil report <span>--shareable</span>" in page  # a flag stays on its line
    assert (
        "<p>Limit not shown to be kept. Asked: an error of at most 0.5 km" in page
        and "</p><p>An adversary who knows chain" in page
    )


def test_small_distances_keep_their_digits_in_the_table_of_rivals():
    """Of a meter everything is a few Wh: three decimals of a kWh would make all rows alike."""
    rival = Rival("this policy", 0.5, 0.0, 0.0154, "computed exactly")
    spot = SimpleNamespace(point=SimpleNamespace(leakage=0.5), rivals=[rival])
    [row] = table_rows(spot)
    assert row[1:4] == ["0.0154", "0.500", "1.0"]
