"""Pictures as SVG text: they scale, and need no script. Classes are those of the page's style."""

from collections.abc import Iterable
from html import escape


def picture(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{''.join(parts)}</svg>"


def text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "soft") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def path(kind: str, d: str, title: str = "", more: str = "") -> str:
    return f'<path class="{kind}" d="{d}"{more}>{_titled(title)}</path>'


def dot(kind: str, x: float, y: float, title: str, r: float = 3.5) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}">{_titled(title)}</circle>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Classes of lines and what they are."""
    line = '<svg viewBox="0 0 14 8"><line class="{}" x1="0" x2="14" y1="4" y2="4" stroke-width="2"/></svg>{}'
    return f'<ul class="key">{"".join(f"<li>{line.format(kind, escape(words))}</li>" for kind, words in entries)}</ul>'


def _titled(title: str) -> str:
    return f"<title>{escape(title)}</title>" if title else ""
