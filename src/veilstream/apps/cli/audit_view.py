"""What `veil audit` prints: the tables, then the verdict."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilstream.audit.tables import Sheet, sheets

if TYPE_CHECKING:
    from veilstream.audit import Audit, Check


def show(found: "Audit", result: "Check", words: str) -> None:
    console = Console(highlight=False)
    for sheet in sheets(found):
        console.print(table(sheet))
    console.print()
    console.print(escape(words), style="" if result.stands else "bold red")
    console.print(f"[dim]{found.seconds:.0f} s; cross-entropies in nats, brackets are 95 % intervals over traces[/]")


def table(sheet: Sheet) -> Table:
    out = Table(title=escape(sheet.title), title_justify="left", box=None)
    for i, name in enumerate(sheet.head):
        out.add_column(escape(name), justify="right" if i else "left", no_wrap=True)
    for cells, strong in sheet.rows:
        out.add_row(*map(escape, cells), style="bold" if strong else "dim")
    return out
