"""Rows of a benchmark as the table that the documentation prints."""

from collections.abc import Mapping
from typing import Any

Columns = Mapping[str, str]  # head: a format of the row's figures, as in '{felt:.2f}'


def markdown(rows: Mapping[str, Mapping[str, Any]], columns: Columns, who: str = "who") -> str:
    """One line each; a row that holds a note alone says it, and what is not about one of them is left out."""
    lines = [f"| {' | '.join([who, *columns])} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        try:
            cells = [text.format_map(row) for text in columns.values()]
        except KeyError:
            if "note" not in row:
                continue
            cells = [str(row["note"]), *[""] * (len(columns) - 1)]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)
