"""The short paper and the citation: complete, and with figures that a command wrote."""

import json
import re

import pytest

from rooms import ROOT

PAPER = (ROOT / "paper" / "paper.md").read_text()
BIB = (ROOT / "paper" / "paper.bib").read_text()
CORE = json.loads((ROOT / "benchmarks" / "results.json").read_text())["results"]["core"]


def test_it_has_the_sections_that_the_journal_asks_for():
    sections = re.findall(r"^# (.+)$", PAPER, re.M)
    asked = ["Summary", "Statement of need", "State of the field", "Software design", "Research impact statement"]
    assert sections == [*asked, "AI usage disclosure", "Acknowledgements", "References"]
    assert 700 < len(PAPER.split()) < 1750


def test_what_is_cited_is_listed_and_the_other_way_round():
    listed = set(re.findall(r"^@\w+\{(\w+),", BIB, re.M))
    assert set(re.findall(r"@(\w+)", PAPER.partition("---\n\n")[2])) == listed


def test_every_picture_is_there():
    for path in re.findall(r"!\[.*?\]\((\S+?)\)", PAPER, re.S):
        assert (ROOT / "paper" / path).exists()


@pytest.mark.parametrize(
    ("said", "measured"),
    [
        (r"it takes ([\d.]+) s", CORE["solve"]["seconds"]),
        (r"within ([\d.]+) % of the optimum in", 100 * CORE["solve"]["certified_gap"]),
        (r"of the optimum in ([\d.]+) s", CORE["solve"]["certificate_seconds"]),
        (r"with local moves takes ([\d.]+) s", CORE["large"]["seconds"]),
        (r"s and ([\d.]+) GB", CORE["large"]["peak_rss_gb"]),
        (r"GB, (\d+) times less", CORE["large"]["ratio"]),
    ],
)
def test_its_figures_are_those_of_the_benchmark(said, measured):
    found = re.search(said, PAPER)[1]
    decimals = len(found.partition(".")[2])
    assert found == f"{measured:.{decimals}f}", "python -m benchmarks core has other figures: say those"


def test_the_citation_is_complete():
    yaml = pytest.importorskip("yaml")
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license", "type"} <= set(cff)
    assert re.fullmatch(r"\d+\.\d+\.\d+", cff["version"]) and cff["license"] == "Apache-2.0"
    assert cff["references"][0]["doi"] in BIB
