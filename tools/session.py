"""Two minutes in a terminal, recorded: docs/session.svg.

python tools/session.py   runs the commands below in an empty folder and draws what they print, as it would be typed

One SVG without script or font of its own: lines appear by CSS animation and the screen scrolls; who prefers no motion
sees the end. What is printed is real; pauses are made up, so that a reader can follow.
"""

import itertools
import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from rich.text import Text

PAGE = Path(__file__).resolve().parents[1] / "docs" / "session.svg"
COLUMNS, ROWS, CHAR, LINE, PAD = 104, 30, 7.83, 17, 14
TYPED_S, ENTER_S, LINE_S = 0.045, 0.7, 0.06  # a letter, before enter, a line of output
READING = """{"stream":"ann","t":1700000000,"lat":-47.0,"lon":-125.0}"""
# what is typed, and for how many seconds one may read what it prints
SESSION = [
    ("# an invented commuter, a position every 5 minutes: what does sharing cost her?", 1),
    ("veil demo -o demo --seconds 5", 17),
    ("# operating points in plain words", 1),
    ("veil advise demo/city.veil", 16),
    ("# an error of half a kilometre on average, with a proof that hardly anything better exists", 1),
    ("veil solve demo/city.veil --avg 500m --certify --seconds 5 -o policy.veil", 18),
    ("# one position in, one out; the meter of leaked bits is public", 1),
    (f"echo '{READING}' | veil release policy.veil", 9),
    ("# again: the same step gets the same release, because two draws reveal more than one", 1),
    (f"echo '{READING}' | veil release policy.veil", 9),
    ("# what does an exact adversary learn?", 1),
    ("veil audit policy.veil --quick | tail -8", 14),
]
COLOURS = {"dim": "#7d8590", "bold": "#ffffff", "": "#d0d7de", "comment": "#7ee787", "typed": "#79c0ff"}


def printed(command: str, folder: str) -> list[str]:
    env = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    if command.startswith("#"):
        return []
    done = subprocess.run(
        command, shell=True, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout.rstrip().splitlines()


def wrapped(line: str) -> list[Text]:
    """Broken between words where it is too long."""
    text, out = Text.from_ansi(line), []
    while len(text) > COLUMNS:
        at = text.plain.rfind(" ", 0, COLUMNS + 1)
        out.append(text[:at])
        text = text[at + 1 :]
    return [*out, text]


def spans(text: Text) -> str:
    """A line as tspans: bold and dim are all that our commands use."""
    out, plain = [], text.plain
    edges = sorted({0, len(plain), *(e for s in text.spans for e in (s.start, s.end))})
    for start, end in itertools.pairwise(edges):
        styles = " ".join(str(s.style) for s in text.spans if s.start <= start and end <= s.end)
        kind = "dim" if "dim" in styles else "bold" if "bold" in styles else ""
        part = escape(plain[start:end])
        out.append(f'<tspan class="{kind}">{part}</tspan>' if kind else part)
    return "".join(out)


def drawn(session: list[tuple[str, float, list[str]]]) -> str:
    """Every line with the second it appears at, then the scrolling."""
    now, row, lines, scrolls = 0.5, 0, [], [(0.0, 0)]

    def put(text: str) -> None:
        nonlocal row
        y = PAD + 26 + LINE * (row + 1)
        if row >= ROWS:
            scrolls.append((now, row - ROWS + 1))
        style = f"animation-delay:{now:.2f}s"
        lines.append(f'<text x="{PAD}" y="{y}" style="{style}">{text}</text>')
        row += 1

    for command, reading_s, told in session:
        kind = "comment" if command.startswith("#") else "typed"
        parts = [command[i : i + COLUMNS - 2] for i in range(0, len(command), COLUMNS - 2)]
        for n, part in enumerate(parts):
            put(f'<tspan class="dim">{"$" if n == 0 else ">"}</tspan> <tspan class="{kind}">{escape(part)}</tspan>')
            now += TYPED_S * len(part)
        now += ENTER_S
        for line in told:
            for piece in wrapped(line):
                put(spans(piece))
                now += LINE_S
        now += reading_s
    frames = []
    for (at, up), (then, _) in zip(scrolls, [*scrolls[1:], (now, 0)], strict=True):
        frames.append(
            f"{100 * at / now:.3f}%,{max(100 * then / now - 0.001, 0):.3f}%{{transform:translateY({-LINE * up}px)}}"
        )
    frames.append(f"100%{{transform:translateY({-LINE * scrolls[-1][1]}px)}}")
    width, height = round(2 * PAD + CHAR * COLUMNS), 2 * PAD + 26 + LINE * ROWS
    style = f"""
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;
fill:{COLOURS[""]};opacity:0;animation:show .01s forwards}}
{"".join(f".{k}{{fill:{c}{';font-weight:600' if k == 'bold' else ''}}}" for k, c in COLOURS.items() if k)}
@keyframes show{{to{{opacity:1}}}}
@keyframes scroll{{{"".join(frames)}}}
#roll{{animation:scroll {now:.2f}s linear forwards}}
@media (prefers-reduced-motion:reduce){{text{{animation-delay:0s!important}}#roll{{animation-duration:.01s}}}}
"""
    dots = "".join(f'<circle cx="{PAD + 6 + 18 * i}" cy="19" r="5.5" fill="#484f58"/>' for i in range(3))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">
<title id="t">veilstream in a terminal</title>
<desc id="d">veil demo, advise, solve, release twice and audit, with what they print: {now:.0f} seconds.</desc>
<style>{style}</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>{dots}
<clipPath id="screen"><rect x="0" y="{PAD + 30}" width="{width}" height="{LINE * ROWS + 2}"/></clipPath>
<g clip-path="url(#screen)"><g id="roll" xml:space="preserve">
{chr(10).join(lines)}
</g></g></svg>
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(drawn([(command, reading_s, printed(command, folder)) for command, reading_s in SESSION]))
    print(f"written: {PAGE.name}, {PAGE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
