"""Bits about now against lateness, drawn: docs/lateness.svg, of the table in docs/cascade.md.

python -m benchmarks lateness --table    the table
python tools/lateness.py                 the picture
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"
MINUTES = {"none": 2, "1 step": 5, "15 min": 15, "1 h": 60, "3 h": 180, "6 h": 360, "1 day": 1440, "2 days": 2880}
ROW = re.compile(r"^\| (\d{3}): ([^|]+?) \|((?: [\d.]+ \|){8})$", re.MULTILINE)
STYLE = ({"color": "#888", "ls": ":"}, {"color": "#1b6ca8"}, {"color": "#d1603d", "ls": "--"})


def rows() -> dict[str, list[tuple[str, list[float]]]]:
    """The lines of each person: what is released, and bits by lateness."""
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for user, name, cells in ROW.findall((DOCS / "cascade.md").read_text(encoding="utf-8")):
        found.setdefault(user, []).append((name, [float(v) for v in cells.replace("|", " ").split()]))
    return found


def main() -> None:
    plt.rcParams |= {"svg.hashsalt": "lateness", "svg.fonttype": "none"}
    people = rows()
    figure, panels = plt.subplots(1, len(people), figsize=(10, 2.9), sharey=True, layout="constrained")
    for ax, (user, lines) in zip(panels, people.items(), strict=True):
        for (name, bits), style in zip(lines, STYLE, strict=True):
            ax.plot(list(MINUTES.values()), bits, marker=".", label=name, **style)
        ax.set(title=user, xscale="log", ylim=(0, None))
        ax.set_xticks(list(MINUTES.values())[::2], list(MINUTES)[::2], rotation=40, fontsize=8)
        ax.minorticks_off()
        ax.legend(fontsize=8, frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("bits about now")
    figure.supxlabel("how late releases come", fontsize=10)
    figure.savefig(DOCS / "lateness.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
