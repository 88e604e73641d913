"""What every reader promises, whatever is in the file. A new one joins by being in READERS."""

import gzip
import io
import itertools
import re
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attack.files import packed, read_or_refused, values_in
from samples import SAMPLES, packed_bytes
from veilstream.data.readers import READERS
from veilstream.data.sources import HEAD, read
from veilstream.data.steps import clean
from veilstream.errors import InputError

every_reader = pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)


@pytest.fixture
def file(tmp_path, reader):
    return tmp_path / f"x{reader.endings[0]}"


@every_reader
def test_its_example_holds_three_readings_out_of_order(reader, file):
    readings = read_or_refused(file, SAMPLES[reader.name], reader)
    assert (readings.frame.height, len(readings.streams), readings.n_traces) == (3, 1, 1)
    assert len(set(values_in(reader))) >= 3
    ordered = clean(readings, max_speed_kmh=1e9)
    assert ordered.account.count("backward time") == 1
    assert (np.diff(ordered.frame["t"].to_numpy()) > 0).all()
    shown = [f"{x:.6f}".partition(".")[2] for x in ordered.frame.select(readings.columns).to_numpy().ravel()]
    assert sorted(shown) == sorted(values_in(reader))


@every_reader
def test_it_is_known_by_its_ending_and_by_its_beginning(reader, tmp_path):
    found = [
        read_or_refused(tmp_path / f"x{ending}", SAMPLES[reader.name], reader) for ending in (*reader.endings, ".txt")
    ]
    if not reader.magic:
        found += [read_or_refused(tmp_path / "x", "\ufeff" + SAMPLES[reader.name], reader)]
    for small in (
        gzip.compress(packed_bytes(reader, SAMPLES[reader.name])),
        zipped(reader.endings[0], SAMPLES[reader.name], reader),
    ):
        found += [read_or_refused(tmp_path / f"y{reader.endings[0]}.gz", small, reader)]
    assert all(r.frame["t"].to_list() == found[0].frame["t"].to_list() for r in found)


def test_no_beginning_has_two_readers_but_those_that_take_anything():
    for reader in READERS:
        if not reader.magic:
            assert next(r for r in READERS if not r.magic and r.takes(SAMPLES[reader.name])) is reader
            assert [r for r in READERS if not (r.magic or r.rank) and r.takes(SAMPLES[reader.name])] in ([reader], [])
    assert all(re.fullmatch(r"\.[a-z0-9]+", ending) for reader in READERS for ending in reader.endings)
    assert len({reader.name for reader in READERS}) == len(READERS)


@every_reader
def test_what_is_empty_binary_or_a_folder_is_refused(reader, file, tmp_path):
    for content in (b"", b" \n\n", b"\xff" * 100, b"\0" * 100, b"PK\x03\x04 and more", bytes(range(256)) * 40):
        assert read_or_refused(file, content, reader) is None
    folder = tmp_path / f"folder{reader.endings[0]}"
    folder.mkdir()
    with pytest.raises(InputError, match="a folder without traces"):
        read([str(folder)])
    (folder / f"inner{reader.endings[0]}").mkdir()
    with pytest.raises(InputError, match="a folder without traces"):
        read([str(folder)])


@pytest.mark.slow
@every_reader
def test_cut_off_anywhere_it_is_read_or_refused(reader, file):
    text = packed_bytes(reader, SAMPLES[reader.name])
    cuts = range(0, len(text), max(1, len(text) // 120))
    heights = [r.frame.height for n in cuts if (r := read_or_refused(file, text[:n], reader)) is not None]
    assert max(heights, default=0) <= 3


@every_reader
def test_what_is_not_utf8_far_into_the_file_is_refused(reader, file):
    for far in (b" " * HEAD, b"\n" * HEAD) if not reader.magic else ():
        assert read_or_refused(file, SAMPLES[reader.name].encode() + far + b"\xff\n", reader) is None


@pytest.mark.slow
@every_reader
def test_a_line_without_end_is_read_or_refused(reader, file):
    lines, length = SAMPLES[reader.name].splitlines(), 3_000 if reader.magic else 300_000
    for filler in ("9", "x", ",", '"', "[", "<", "é"):
        for at in range(len(lines) + 1):
            read_or_refused(file, "\n".join([*lines[:at], filler * length, *lines[at:]]), reader)
    for field in values_in(reader)[:2]:
        read_or_refused(file, SAMPLES[reader.name].replace(field, field * (length // 6)), reader)


@pytest.mark.slow
@every_reader
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_changed_it_is_read_or_refused_without_telling_a_value(reader, file, data):
    text = bytearray(
        SAMPLES[reader.name].encode() if data.draw(st.booleans()) else packed(SAMPLES[reader.name], reader)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        text[at : at + gone] = data.draw(
            st.sampled_from([b"", b"\n", b",", b'"', b"\xff", b"x", b"-", b"e9", b"{", b"<"])
        )
    changed = bytes(text)
    if reader.magic and not changed.startswith(reader.magic):
        changed = packed(changed.decode(errors="replace"), reader)
    read_or_refused(file, changed, reader)


def zipped(ending, text, reader):
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"folder/x{ending}", packed_bytes(reader, text))
    return out.getvalue()


CANARY = "48.858370294"
BROKEN = (
    f"{CANARY};2.29",
    f"{CANARY}x", f"x{CANARY}", f"{CANARY},{CANARY}", f"{CANARY} {CANARY}", f"'{CANARY}", f'"{CANARY}',
    f"{CANARY}e400", f"9{CANARY}", f"-{CANARY}-", f"{CANARY}N", f"[{CANARY}]", f"<{CANARY}>", CANARY.replace(".", ","),
    f"2013-13-45T{CANARY}", f"NaN{CANARY}", f"{CANARY}\t{CANARY}", f"{CANARY}\x07",
)  # fmt: skip
REC = (  # of an OwnTracks recorder: one line as it writes them, one as nobody does
    f'2016-03-27T22:21:31Z\t*                 \t{{"_type":"location","lat":{CANARY},"lon":2.294481,"tst":1459117291}}',
    f"2016-03-27T22:21:31Z  *   {CANARY} 2.294481",
)


TOLD = itertools.cycle([{"columns": "time=t,value=v"}, {"skip_bad": True}, {"time_format": "%Y"}])


def no_canary(path, content, reader=None):
    path.write_bytes(content.encode() if reader is None else packed(content, reader))
    for options in ({}, next(TOLD)):
        said = ""
        try:
            read([str(path)], **options)
        except InputError as error:
            said = str(error)
        assert CANARY.partition(".")[2][:5] not in said


@pytest.mark.slow
@every_reader
def test_a_true_coordinate_in_a_broken_line_is_in_no_message(reader, file):
    lines = SAMPLES[reader.name].splitlines()
    fields = re.compile(
        r"-?\d+\.\d{6}|\d{4}-\d{2}-\d{2}[T ]?[\d:Z]*|\d{10}|E7|\d{9}|alice|trkpt|lat|time|sensor|sgv|value"
    )
    for at, line in enumerate(lines):
        for broken in BROKEN:
            for found in [*fields.finditer(line)][:3]:
                changed = line[: found.start()] + broken + line[found.end() :]
                no_canary(file, "\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n", reader)
    for broken in BROKEN:
        no_canary(file, "\n".join([broken, *lines]) + "\n", reader)
        no_canary(file, "\n".join([*lines, broken]) + "\n", reader)


@pytest.mark.parametrize(
    "ending", [".rec", ".txt", "", ".csv", ".jsonl", ".gpx", ".plt", ".json", ".xml", ".db", ".parquet"]
)
def test_a_file_that_no_reader_knows_is_refused_without_telling_a_value(tmp_path, ending):
    for line in REC:
        no_canary(tmp_path / f"2016-03{ending}", f"{line}\n{line}\n")
