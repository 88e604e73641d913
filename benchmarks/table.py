"""Rows of a benchmark as the table that the documentation prints."""

from collections.abc import Mapping
from typing import Any

Columns = Mapping[str, str]  # head: a format of the row's figures, as in '{felt:.2f}'


def in_table(row: Mapping[str, Any], columns: Columns) -> bool:
    """Whether it is about one of them, or says why there is nothing to tell."""
    return "note" in row or cells(row, columns) is not None


def cells(row: Mapping[str, Any], columns: Columns) -> list[str] | None:
    try:
        return [text.format_map(row) for text in columns.values()]
    except KeyError:
        return [str(row["note"]), *[""] * (len(columns) - 1)] if "note" in row else None


def markdown(rows: Mapping[str, Mapping[str, Any]], columns: Columns, who: str) -> str:
    """One line each; what is not about one of them is left out."""
    lines = [f"| {' | '.join([who, *columns])} |", "|---" * (len(columns) + 1) + "|"]
    told = ((name, cells(row, columns)) for name, row in rows.items())
    return "\n".join([*lines, *(f"| {' | '.join([name, *line])} |" for name, line in told if line is not None)])
