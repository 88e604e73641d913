"""Smart meters read at their P1 port (DSMR): what was taken from the grid, tariffs together, in kWh.

    HomeWizard      time, Import T1 kWh, Import T2 kWh, ...           registers that count on: differences are read
    DSMR-reader     timestamp, electricity_delivered_1, _2, ...       the same
                    hour_start, electricity1, electricity2, ...       what an hour took

Told another column (`columns='value=...'`), it is a CSV like others.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from veilstream.data.columns import Layout, goes_by, has_time
from veilstream.data.readers import csv_table
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.table import typed
from veilstream.data.readings import Entry

DIGITS = 6  # of a difference of two registers
_REGISTER = re.compile(r"import(?:[ _]t[12])?(?:[ _]kwh)?|electricity_delivered_[12]", re.IGNORECASE)
_TAKEN = re.compile(r"electricity[12]", re.IGNORECASE)


def read_p1(path: Path, name: str, options: ReadOptions) -> Table:
    if "value" in options.columns:
        return csv_table.read_csv(path, name, options)
    _, header, _ = csv_table.table_header(path, name, options.columns)
    registers = [c for c in header if _REGISTER.fullmatch(c.strip())]
    columns = tuple(registers or [c for c in header if _TAKEN.fullmatch(c.strip())])
    time = options.columns.get("time") or next((c for c in header if goes_by("time", c)), "")
    if time not in header or not columns:
        return csv_table.read_csv(path, name, options)
    table = typed(csv_table.text_table(path, name, options.columns, Layout(time, wide=columns)), options)
    both = table.frame.group_by("t", maintain_order=True).agg(pl.col("value").sum())
    if registers:
        whole = table.frame.group_by("t").agg(pl.len()).filter(pl.col("len") == len(columns)).select("t")
        both = both.join(whole, on="t", how="semi").sort("t").with_columns(pl.col("value").diff().round(DIGITS))
        both = both.filter(pl.col("value") >= 0)  # the first has none before it; a new meter starts again
        said = Entry("registers", both.height, f"differences of {' + '.join(columns)}, which count on")
        table = replace(table, notes=(*table.notes, said))
    return replace(table, frame=both, unit="kWh")


def _takes(text: str) -> bool:
    first = re.split(r"[,;\t]", text.partition("\n")[0].strip().replace('"', ""))
    known = [c for c in first if _REGISTER.fullmatch(c.strip()) or _TAKEN.fullmatch(c.strip())]
    return has_time(first) and bool(known)


READER = Reader("P1 (DSMR)", (".csv",), read_p1, _takes)
