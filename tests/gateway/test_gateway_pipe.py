"""`veil release` and `veil serve` as people run them: files in, files out, exit codes, canaries."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import NamedTuple

import numpy as np
import pytest

from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of, levels, places
from mosquitto import Mosquitto, free_port
from mqttkit import Client
from patience import PATIENCE_S, wait_until
from veilcli import VEIL
from veilstream.apps.cli import main
from veilstream.errors import InputError
from veilstream.gateway import pipe

JSONL = b"".join(b'{"stream":"s%d","t":%d,"value":%d}\n' % (i % 3, i // 3, i % 16) for i in range(60))


def run(core, data: bytes, **options) -> bytes:
    out = io.BytesIO()
    pipe.run(core, io.BytesIO(data), out, **options)
    return out.getvalue()


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


@pytest.fixture
def veil(monkeypatch, capfdbinary):
    """Runs the command in this process, which is quicker than starting one."""

    def run_it(*arguments, data: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["veil", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        code = ended.value.code
        return Done(code or 0, *capfdbinary.readouterr())

    return run_it


def test_json_lines(tmp_path):
    with core_of(artefact(tmp_path / "p.veil")) as core:
        out = run(core, JSONL + b'\n  \nnot json\n{"stream":"s0","t":1,"value":9}')
        lines = [json.loads(line) for line in out.splitlines()]
        assert [(r["stream"], r["t"]) for r in lines[:60]] == [(f"s{i % 3}", i // 3) for i in range(60)]
        assert all(set(r) == {"stream", "t", "released", "leaked_bits"} for r in lines)
        assert len(lines) == 60  # a line a step
        assert core.stats.refused["unreadable"] == 1
        (again,) = run(core, b'{"stream":"s0","t":1,"value":9}\n').splitlines()
        assert json.loads(again) == lines[3]
        twice = run(core, 2 * b'{"stream":"s0","t":1,"value":9}\n', per_reading=True)
        assert twice.splitlines() == [again, again]


@pytest.mark.parametrize("as_csv", [False, True])
def test_every_step_is_written_once_a_run_whatever_was_released_before(tmp_path, as_csv):
    """Against the plain rule: a set of what was written."""
    random, told = np.random.default_rng(4), []
    with core_of(artefact(tmp_path / "p.veil")) as core:
        known = set()
        for _ in range(4):
            asked = [(f"s{random.integers(3)}", int(random.integers(40))) for _ in range(60)]
            rows = [b'{"stream":"%s","t":%d,"value":3}' % (s.encode(), t) for s, t in asked]
            if as_csv:
                quoted = ('"%s",%d,3' if t % 2 else "%s,%d,3" for _, t in asked)
                rows = [b"who,t,v", *((form % one).encode() for form, one in zip(quoted, asked, strict=True))]
            lines = run(
                core, b"\n".join(rows), columns={"stream": "who", "value": "v"} if as_csv else None
            ).splitlines()
            if as_csv:
                found = [(r["stream"], int(r["t"])) for r in csv.DictReader(line.decode() for line in lines)]
            else:
                found = [(r["stream"], r["t"]) for r in map(json.loads, lines)]
            latest = {}
            for s, t in sorted(known):
                latest[s] = t
            expected = []
            for s, t in asked:
                if t > latest.get(s, -1):
                    latest[s] = t
                    known.add((s, t))
                if (s, t) in known and (s, t) not in expected:
                    expected.append((s, t))
            assert found == expected
            told += found
    assert len(set(told)) < len(told)  # some were asked for in several runs


def test_csv_with_a_map_a_key_and_iso_times(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places(), period_s=300.0)
    rows = (
        "﻿who,time,lat,lon,alt\r\nann,2023-01-01T00:07:00+00:00,39.91,116.31,9\r\n"
        '"b,ob",1672531620,39.9,x,9\r\nann,never,1,2,3\nshort,1\n'
    )
    with core_of(art) as core:
        out = list(csv.DictReader(io.StringIO(run(core, rows.encode(), columns={"stream": "who"}).decode())))
        assert [(r["stream"], r["t"]) for r in out] == [("ann", "2023-01-01T00:05:00Z"), ("b,ob", "1672531500")]
        assert list(out[0]) == ["stream", "t", "released", "lat", "lon", "leaked_bits"]
        assert (core.stats.refused["time"], core.stats.refused["unreadable"]) == (1, 1)
        assert core.store.load("", "b,ob").private.faults == 1


@pytest.mark.parametrize("header", [b"39.912345678,116.3,5\n", b"stream,t\n", b"a,b,c\n1,2,3\n", b"\xff\xfe,t\n"])
def test_a_wrong_header_is_one_line_that_shows_no_data(tmp_path, header):
    with core_of(artefact(tmp_path / "p.veil")) as core, pytest.raises(InputError, match="header") as error:
        run(core, header)
    assert "912345" not in str(error.value)


def test_names_are_guessed_as_fit_guesses_them_and_milliseconds_are_no_seconds(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places(), period_s=300.0)
    table = b"Timestamp,Latitude,Longitude,user_id\n1672531620000,39.91,116.31,ann\n1672531620000,39.9,116.3,bob\n"
    lines = b'{"ts":1672531920,"lng":116.31,"latitude":39.91,"device":7}\n{"ts":true}\n'
    with core_of(art) as core:
        rows = list(csv.DictReader(io.StringIO(run(core, table).decode())))
        assert [(r["stream"], r["t"]) for r in rows] == [("ann", "1672531500"), ("bob", "1672531500")]
        (one,) = map(json.loads, run(core, lines).splitlines())
        assert (one["stream"], one["t"]) == ("7", 1672531800)
        assert core.stats.refused["time"] == 1
        told = {"time": "a", "lat": "b", "lon": "c", "stream": "d"}
        (told_one,) = run(core, b"a,b,c,d\n1672532220,39.9,116.3,eve\n", form="jsonl", columns=told).splitlines()
        assert json.loads(told_one)["stream"] == "eve"


def test_no_number_is_too_long_to_be_a_reading(tmp_path):
    """Python refuses integers of some thousand digits: that a line was refused told of its value."""
    lines = [b'{"time":%d,"stream":"a","temp":%b}\n' % at for at in enumerate([b"3", b"9" * 5000, b"-" + b"9" * 9000])]
    with core_of(artefact(tmp_path / "p.veil")) as core:
        assert len(run(core, b"".join(lines)).splitlines()) == 3
        assert core.stats.refused["unreadable"] == 0


def test_a_wide_table_has_a_stream_in_every_column(tmp_path):
    with core_of(artefact(tmp_path / "p.veil")) as core:
        rows = list(csv.DictReader(io.StringIO(run(core, b"t,m1,m2\n0,1,2\n1,3,\n").decode())))
        assert [(r["stream"], r["t"]) for r in rows] == [(f"m{k}", t) for t in "01" for k in (1, 2)]
        assert core.store.load("", "m2").private.faults == 1


def test_a_sensors_words_for_beyond_its_range_are_numbers(tmp_path):
    """As `veil fit` reads them; any other word is a fault, counted in private."""
    art = levels(tmp_path / "p.veil", "mg/dL")
    table = "Timestamp,Glucose Value (mg/dL)\n" + "".join(f"{60 * i},{v}\n" for i, v in enumerate(("Low", "high", "?")))
    lines = b'{"timestamp":180,"Glucose Value (mg/dL)":"High"}\n'
    with core_of(art) as core:
        run(core, table.encode())
        run(core, lines)
        assert core.stats.released == 4 and core.store.load("", "stream").private.faults == 1


def test_people_are_never_merged_without_a_word(tmp_path):
    table = "t,value,owner\n" + "".join(f"{i // 2},{i % 16},{'ab'[i % 2]}\n" for i in range(60))
    with core_of(artefact(tmp_path / "p.veil")) as core:
        with pytest.raises(InputError, match="owner tells 2 streams apart"):
            run(core, table.encode())
        assert run(core, table.encode(), columns={"stream": "owner"}).count(b"\n") == 61
        assert run(core, table.encode(), columns={"stream": "-"}).count(b"\n") == 31


def test_what_a_run_came_to_is_the_mean_over_steps_and_the_meter(tmp_path):
    """The oracle: distances by the states' own function, bits as the last line of each stream says."""
    states = places()
    at = [(39.9 + 0.003 * (i % 11), 116.3 + 0.002 * (i % 13)) for i in range(80)]
    table = "time,lat,lon\n" + "".join(f"{150 * i},{a},{o}\n" for i, (a, o) in enumerate(at))
    with core_of(artefact(tmp_path / "p.veil", states=states, period_s=300.0)) as core:
        out = io.BytesIO()
        tally = pipe.run(core, io.BytesIO(table.encode()), out)
        rows = list(csv.DictReader(io.StringIO(out.getvalue().decode())))
        far = states.distance_to(at[::2], [int(r["released"]) for r in rows])
        assert tally.steps == len(rows) == 40
        assert tally.felt == pytest.approx(far.mean())
        assert core.store.total_bits() - tally.bits_before == pytest.approx(float(rows[-1]["leaked_bits"]), abs=1e-6)


def test_the_command_takes_what_fit_takes(tmp_path, veil):
    policy, track, table = tmp_path / "p.veil", tmp_path / "walk.gpx", tmp_path / "two.csv"
    artefact(policy, states=places(), period_s=300.0)
    points = [(39.9 + 0.003 * (i % 11), 116.3, f"2023-01-01T{i // 30:02d}:{2 * (i % 30):02d}:00Z") for i in range(90)]
    inside = "".join(f'<trkpt lat="{a}" lon="{o}"><time>{t}</time></trkpt>' for a, o, t in points)
    track.write_text(f'<gpx version="1.1" creator="x"><trk><trkseg>{inside}</trkseg></trk></gpx>')
    done = veil("release", policy, track, "--no-store")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert len(rows) == 36  # three hours of five minutes
    assert [r["t"] for r in rows[:2]] == ["2023-01-01T00:00:00Z", "2023-01-01T00:05:00Z"]
    said = done.stderr.decode()
    assert "mean error: " in said and " km from a reading to its release" in said
    assert "leaked: " in said
    table.write_text("when,user,lat,lon\n" + "".join(f"{t},{u},{a},{o}\n" for a, o, t in points for u in "ab"))
    done = veil("release", policy, table, "--columns", "time=when", "--no-store", "--json", "--format", "jsonl")
    assert {json.loads(line)["stream"] for line in done.stdout.splitlines()} == {"a", "b"}
    found = json.loads(done.stderr.splitlines()[-1])
    assert (found["released"], found["unit"], found["streams"]) == (72, "km", 2)
    assert found["felt"] > 0
    late = veil("release", policy, track, "--no-store", "--option", "per-reading=true")
    assert late.stdout.count(b"\n") == 91
    future = track.with_name("far.csv")
    future.write_text("time,lat,lon\n2023-01-01T00:00:00Z,39.9,116.3\n2999-01-01T00:00:00Z,39.9,116.3\n")
    said = veil("release", policy, future, "--no-store").stderr.decode()
    assert "! refused 1 reading: 1 ahead (this step lies further ahead" in said


def test_a_line_without_end_is_refused_in_constant_memory(tmp_path):
    class Endless(io.RawIOBase):
        left = 40_000_000

        def read1(self, n):
            self.left -= n
            return b"x" * n if self.left > 0 else b""

    with core_of(artefact(tmp_path / "p.veil")) as core:
        pipe.run(core, Endless(), io.BytesIO(), "jsonl")
        assert core.stats.refused["too_large"] == 1
        out = run(core, b"y" * 3_000_000 + b"\n" + JSONL[:40] + b"\n", form="jsonl")
        assert core.stats.refused["too_large"] == 2
        assert out.count(b"\n") == 1


def test_the_command_resumes_and_says_what_it_did(tmp_path, veil):
    policy = tmp_path / "p.veil"
    artefact(policy)
    first = veil("release", policy, data=JSONL[:1000])
    whole = veil("release", policy, "--json", data=JSONL)
    assert first.returncode == whole.returncode == 0
    assert whole.stdout.startswith(first.stdout[: first.stdout.rfind(b"\n", 0, -1)])
    account = json.loads(whole.stderr)
    assert account["repeated"] == len(first.stdout.splitlines())
    assert account["released"] + account["repeated"] == 60
    assert veil("release", policy, data=JSONL).stdout == whole.stdout
    assert veil("release", policy, "--no-store", data=JSONL).stdout != whole.stdout
    seeded = [veil("release", policy, "--no-store", "--option", "seed=1", data=JSONL) for _ in range(2)]
    assert seeded[0].stdout == seeded[1].stdout  # six decimals of the meter
    assert b"seed" in seeded[0].stderr
    artefact(policy, seed=1)
    changed = veil("release", policy, data=JSONL)
    assert changed.stdout == whole.stdout
    assert b"policy changed" in changed.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["release", "missing.veil"], "missing.veil"),
        (["release", "{p}", "--format", "xml"], "unknown format"),
        (["release", "{p}", "--skip-bad"], "needs a SOURCE"),
        (["release", "{p}", "nowhere.csv"], "nowhere.csv"),
        (["release", "{p}", "--option", "meter=best"], "unknown meter"),
        (["release", "{p}", "--ceiling", "-1"], "ceiling"),
        (["release", "{p}", "--store", "{p}"], "not a database"),
        (["release", "{p}", "--store", "/nowhere/s.db"], "/nowhere/s.db"),
        (["release", "{p}", "--store", "s.db", "--no-store"], "exclude"),
        (["serve", "{p}"], "nothing to serve"),
        (["serve", "{p}", "--mqtt", ""], "the broker's name"),
        (["serve", "{p}", "--http", "0.0.0.0:8080"], "token"),
        (["serve", "{p}", "--http", "eighty"], "port"),
        (["serve", "{p}", "--mqtt", "localhost", "--in", "a/+", "--out", "a/+"], "come back"),
        (["serve", "{p}", "--mqtt", "localhost", "--route", "x"], "IN OUT POLICY"),
        (["serve", "{p}", "--mqtt", "localhost", "--option", "ca=/nowhere.pem"], "TLS"),
        (["serve", "{p}", "--mqtt", "localhost", "--clock"], "period"),
        (["serve", "{p}", "--http", "8080", "--clock"], "--mqtt"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(tmp_path, monkeypatch, veil, arguments, says):
    policy = tmp_path / "p.veil"
    artefact(policy)
    policy.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    done = veil(*(a.format(p=policy) for a in arguments), data=JSONL)
    assert done.returncode == 2, done
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    assert says in lines[0]
    assert "Traceback" not in done.stderr.decode()


CANARIES = ["912345", "317171", "CanaryNet", "canary street"]


@NEEDS_MOSQUITTO
def test_serve_end_to_end_and_no_canary_anywhere(tmp_path):
    """`veil serve` with MQTT and HTTP: every log, page, metric, database and output is searched for true values."""
    policy, store, log = tmp_path / "p.veil", tmp_path / "veil.db", tmp_path / "log"
    artefact(policy, states=places(), period_s=60.0)
    (tmp_path / "broker").mkdir()
    broker, port = Mosquitto(tmp_path / "broker"), free_port()
    client = Client(broker.port, "out/#", "veil/status")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str, body=None) -> str:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        try:
            with opener.open(request, timeout=PATIENCE_S) as answer:
                return answer.read(20_000).decode() if "events" not in path else answer.readline().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    arguments = [
        "serve",
        policy,
        "--mqtt",
        f"127.0.0.1:{broker.port}",
        "--http",
        port,
        "--store",
        store,
        "--ceiling",
        9,
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*VEIL, *map(str, arguments)], stdout=stderr, stderr=stderr)
    try:
        wait_until(lambda: b"broker_connected" in log.read_bytes() and b"http_listening" in log.read_bytes())
        where = {"lat": 39.912345678, "lon": 116.317171717, "SSID": "CanaryNet", "inregions": ["canary street"]}
        public = []
        for t in range(1000, 1030):
            client.say("in/phone", {"_type": "location", "tst": 60 * t, **where})
            public.append(ask("/v1/release", {"stream": "web", "t": 60 * t, **where}))
        public.append(ask("/v1/release", {"stream": "web", "t": 1, **where}))  # late
        public.append(ask("/v1/release", {"stream": "web", "t": "x 39.912345678", **where}))
        public.append(
            ask("/v1/release", b'{"stream":"web","t":99999,"lat":39.912345678,"lon":"116.317171717 CanaryNet')
        )
        public.append(ask("/v1/release", b'[{"stream":39.912345678}]'))
        public.append(ask("/39.912345678?lat=39.912345678"))
        for junk in (b"39.912345678", b'{"lat":39.912345678', b"\xff39.912345678", b'{"t":1e999,"lat":39.912345678}'):
            client.say("in/phone", junk)
        wait_until(lambda: len({payload for topic, payload, _ in client.heard if topic == "out/phone"}) == 30)
        public += [ask(path) for path in ("/", "/v1/status", "/v1/events", "/metrics", "/healthz", "/openapi.json")]
        wait_until(lambda: 'veil_refused_total{reason="unreadable"} 6.0' in ask("/metrics"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        wait_until(lambda: any(payload == b"offline" for _, payload, _ in client.heard))
    finally:
        process.kill()
        client.end()
        broker.stop()
    files = {f.name: f.read_bytes() for f in tmp_path.glob("veil.db*")}
    texts = {
        "http": "\n".join(public).encode(),
        "mqtt": b"\n".join(p for _, p, _ in client.heard),
        "log": log.read_bytes(),
        **files,
    }
    for name, text in texts.items():
        for canary in CANARIES:
            assert canary.encode() not in text, f"{canary} in {name}"
    for line in log.read_text().splitlines():
        assert {"time", "level", "event", "part"} <= set(json.loads(line))
    assert re.search(rb'"event": "stopped".*"released": 60', texts["log"])
    assert os.stat(store).st_mode & 0o077 == 0
    totals = [json.loads(p)["leaked_bits"] for p in texts["http"].splitlines()[:30] if p.startswith(b'{"stream"')]
    assert max(totals) <= 9


def test_serve_without_a_broker_goes_on_trying_and_ends_on_a_signal(tmp_path):
    policy, log = tmp_path / "p.veil", tmp_path / "log"
    artefact(policy)
    with log.open("wb") as stderr:
        process = subprocess.Popen([*VEIL, "serve", str(policy), "--mqtt", f"127.0.0.1:{free_port()}"], stderr=stderr)
    wait_until(lambda: log.read_bytes().count(b"broker_unavailable") >= 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
