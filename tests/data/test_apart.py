"""Damaged files with types: what polars does at them is done by a process apart, and costs one line."""

import os
import random

import pytest

from attack.files import packed, read_or_refused
from samples import SAMPLES
from veilstream.data.readers import columnar as apart
from veilstream.data.sources import read
from veilstream.errors import InputError

TYPED = pytest.mark.parametrize("reader", apart.READERS, ids=lambda r: r.name)


@pytest.fixture
def file(tmp_path, reader):
    path = tmp_path / f"x{reader.endings[0]}"
    path.write_bytes(packed(SAMPLES[reader.name], reader))
    return path


@pytest.fixture
def another(monkeypatch):
    """Another program for the process that is asked."""

    def put(program: str) -> None:
        monkeypatch.setattr(apart, "_apart", {})
        monkeypatch.setattr(apart, "PROGRAM", program)

    return put


@TYPED
def test_flipped_bits_leave_nothing_on_standard_error(reader, file, capfd):
    """Of Feather one in twenty makes polars' threads panic, which they tell there."""
    whole, rng = file.read_bytes(), random.Random(4)
    found = []
    for _ in range(80):
        at = rng.randrange(len(whole))
        found.append(
            read_or_refused(file, whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :], reader)
        )
    assert capfd.readouterr().err == ""
    assert any(f is None for f in found) and any(f is not None for f in found)


@TYPED
def test_a_file_that_ends_its_process_is_one_line(reader, file, another, monkeypatch):
    another("import os; print('ready', flush=True); input(); os.abort()")
    for _ in range(2):  # each time by a new process
        with pytest.raises(InputError, match=f"not readable as {reader.name}, damaged"):
            read([str(file)])
    monkeypatch.undo()
    assert read([str(file)]).frame.height == 3


@TYPED
@pytest.mark.parametrize("program", ["raise SystemExit", "print('what?')"])
def test_where_no_process_can_be_asked_files_are_read(reader, file, another, program):
    another(program)
    assert read([str(file)]).frame.height == 3


def test_what_lies_in_the_working_folder_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "polars.py").write_text("raise SystemExit")
    (tmp_path / "x.parquet").write_bytes(packed(SAMPLES["Parquet"], apart.READERS[0]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apart, "_apart", {})
    assert apart.survives(tmp_path / "x.parquet")
    assert list(apart._apart) == [os.getpid()]
