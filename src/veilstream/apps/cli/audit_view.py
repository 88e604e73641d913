"""What `veil audit` prints: the tables, then the verdict."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilstream.apps.cli.common import print_limits, print_whole
from veilstream.audit.tables import Sheet, sheets

if TYPE_CHECKING:
    from veilstream.audit.verdict import Assessment


def show(found: "Assessment") -> None:
    console = Console(highlight=False)
    print_limits(console, found.limits)
    changed = [] if found.later is None else found.later.changed(found.cost_unit)
    for line in changed:
        console.print(escape(line), style="bold red", soft_wrap=True)
    for sheet in sheets(found):
        print_whole(table(sheet), console)
    console.print()
    words = found.words.split("\n", len(found.limits) + len(changed))[-1]  # those stand first already
    console.print(escape(words), style="" if found.stands else "bold red")
    for warning in found.warnings:
        console.print(f"[yellow]![/] {escape(warning)}", soft_wrap=True)
    console.print(f"[dim]{found.seconds:.0f} s; cross-entropies in nats, brackets are 95 % intervals over traces[/]")


def table(sheet: Sheet) -> Table:
    out = Table(title=escape(sheet.title), title_justify="left", box=None)
    for i, name in enumerate(sheet.head):
        out.add_column(escape(name), justify="right" if i else "left", no_wrap=True)
    for cells, strong in sheet.rows:
        out.add_row(*map(escape, cells), style="bold" if strong else "dim")
    return out
