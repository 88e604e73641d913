"""What `veil serve --nats` is given: options, TLS, accounts, the promises in the bucket; what is wrong is one line."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gatewaykit import artefact
from natskit import NEEDS_SERVER, Running, key_file
from patience import PATIENCE_S, wait_until

import nats  # isort: skip

from nats_accounts import ACCOUNTS, accounts
from nats_drill import connected
from nats_server import NatsCluster
from veilstream.apps.cli import main
from veilstream.errors import InputError
from veilstream.gateway.nats import layout as layout_module
from veilstream.gateway.nats.client import Link, LinkSettings
from veilstream.gateway.nats.layout import NatsSettings, prepare, promises_of
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.worker import NatsGateway
from veilstream.gateway.space import Space
from veilstream.gateway.tls import Tls

CANARY = 7.25  # a true value that must not be seen anywhere


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("nats") / "policy.veil")


def command(*args: str, **more) -> subprocess.CompletedProcess:
    code = "from veilstream.apps.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "serve", *args], capture_output=True, text=True, timeout=PATIENCE_S, **more
    )


@NEEDS_SERVER
def test_bad_input_gives_one_clear_line(art, tmp_path, server, monkeypatch):
    """Unreachable server, wrong credentials, JetStream off, another policy, a bucket that forgets."""
    policy = str(tmp_path / "p.veil")
    artefact(tmp_path / "p.veil", seed=3)
    locked = NatsCluster(tmp_path / "locked", 1, 'authorization { user: gate, password: "right" }')
    try:
        url = locked.urls[0]
        wrong = url.replace("//", "//gate:secret@")
        for settings, line in (
            ({"urls": ("nats://127.0.0.1:1",)}, "cannot reach a NATS server at 127.0.0.1:1: Connection refused"),
            ({"urls": (url,), "user": "gate", "password": "secret"}, "refused these credentials"),
            ({"urls": (wrong,)}, "refused these credentials"),
        ):
            with pytest.raises(InputError, match=line) as caught:
                NatsGateway({DEFAULT_SPACE: Space(art)}, NatsSettings(key_file(), LinkSettings(**settings))).probe()
            assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
        found = command(policy, "--nats", url.replace("//", "//gate@"), env=_environment(VEIL_NATS_PASSWORD="wrong"))
        assert found.returncode == 2 and "refused these credentials" in found.stderr
        assert "Traceback" not in found.stderr and "wrong" not in found.stderr and len(found.stderr.splitlines()) == 1

        async def log_in():
            await (await Link.open(LinkSettings((url,), user="gate", password="right"))).close()

        asyncio.run(log_in())  # the right one does get in
    finally:
        locked.stop()
    no_jetstream = NatsCluster(tmp_path / "plain", 1, jetstream=False)
    try:
        monkeypatch.setattr(layout_module, "ATTEMPTS", 2)
        refused(art, no_jetstream.urls, r"does not answer: is it on \(-js\)")
    finally:
        no_jetstream.stop()
    with Running(art, server.urls, "bound", partitions=2):
        refused(artefact(tmp_path / "q.veil", seed=3), server.urls, "bound to another policy", "bound")
        refused(art, server.urls, "bound to another policy, ceiling", "bound", ceiling=3.0)
        refused(art, server.urls, "has 2 partitions", "bound", partitions=3)
        refused(art, server.urls, "too small for `replicas=3`", "big", replicas=3)


def refused(art, urls, line: str, prefix: str = "veil", ceiling=None, meter="exact", **more) -> None:
    settings = NatsSettings(key_file(), LinkSettings(tuple(urls)), Names(prefix), **more)
    with pytest.raises(InputError, match=line):
        NatsGateway({DEFAULT_SPACE: Space(art, ceiling, meter)}, settings).probe()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--nats", "http://x"], "--nats takes nats://HOST:PORT"),
        (["--nats", "x", "--http", "8080"], "--http does not go with --nats"),
        (["--nats", "x", "--clock"], "--clock needs a policy with a period"),
        (["--nats", "x", "--option", "nats-creds=no.creds"], "no credentials file"),
        (["--nats", "x", "--option", f"nats-creds={__file__}"], "is no NATS credentials file"),
        (["--nats", "x", "--option", "space=more"], "--option space=... takes NAME=POLICY"),
        (["--nats", "x", "--option", "prefix=a b"], "--option prefix=... takes"),
    ],
)
def test_bad_options_give_one_clear_line(tmp_path, args, line, monkeypatch, capsys):
    artefact(tmp_path / "p.veil")
    monkeypatch.setattr(sys, "argv", ["veil", "serve", str(tmp_path / "p.veil"), *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and line in capsys.readouterr().err


@NEEDS_SERVER
def test_tls(tmp_path, monkeypatch):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    try:
        name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        subprocess.run([*make, *name], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    cluster = NatsCluster(tmp_path, 1, f'tls {{ cert_file: "{cert}", key_file: "{key}" }}')

    async def connect(tls: Tls | None = None):
        link = await Link.open(LinkSettings((cluster.urls[0].replace("nats://", "tls://"),), tls=tls))
        found = await link.api("INFO")
        await link.close()
        return found

    try:
        assert "limits" in asyncio.run(connect(Tls(str(cert))))
        monkeypatch.setattr("veilstream.gateway.nats.client.CONNECT_S", 2.0)
        with pytest.raises(InputError, match=r"no TLS with the NATS server .*`ca_file=FILE`"):
            asyncio.run(connect())
        with pytest.raises(InputError, match="TLS files cannot be used"):
            Tls(str(tmp_path / "none.pem"))
    finally:
        cluster.stop()


def test_the_example_configuration_is_the_one_that_is_tested():
    example = (Path(__file__).parents[2] / "examples" / "gateway" / "nats.conf").read_text()
    assert example.endswith(f"\n{ACCOUNTS}") and "authorization" not in example


@NEEDS_SERVER
def test_the_example_configuration_keeps_readings_from_everyone_but_the_workers(art, tmp_path):
    """A worker works with its permissions; service and device hear neither readings nor memory, and cannot ask."""
    cluster = NatsCluster(tmp_path, 1, accounts())

    async def drive():
        others = {}
        heard: list[str] = []

        async def hear(m):
            heard.append(m.subject)

        for user in ("device", "service"):
            nc = await nats.connect(
                cluster.urls[0], user=user, password=f"{user}-password", inbox_prefix=f"_INBOX.{user}", error_cb=_quiet
            )
            for subject in ("veil.in.>", "_VEIL.>", "$KV.>", "veil.part.>", ">"):
                await nc.subscribe(subject, cb=hear)
            others[user] = nc
        wait = await others["service"].subscribe("veil.out.*.*")
        await others["service"].flush()
        js = others["device"].jetstream()
        for t in range(3):
            await js.publish("veil.in.default.ann", json.dumps({"t": t, "value": CANARY}).encode())
        out = [json.loads((await wait.next_msg(10)).data) for _ in range(3)]
        for call in ("STREAM.MSG.GET.veil-readings", "STREAM.MSG.GET.KV_veil-memory", "STREAM.INFO.KV_veil-memory"):
            with pytest.raises(nats.errors.TimeoutError):
                await others["service"].request(f"$JS.API.{call}", b'{"seq":1}', timeout=0.3)
        for nc in others.values():
            await nc.close()
        return out, heard

    settings = LinkSettings(tuple(cluster.urls), user="gate", password="gate-password")
    try:
        with Running(art, cluster.urls, "veil", settings, partitions=2):
            out, heard = asyncio.run(drive())
    finally:
        cluster.stop()
    assert [r["t"] for r in out] == [0, 1, 2] and heard == []


async def _quiet(error: Exception) -> None:
    """Permission errors are what is wanted."""


def _environment(**more: str) -> dict[str, str]:
    import os

    return {**os.environ, **more}


@NEEDS_SERVER
def test_a_bucket_that_forgets_is_refused_and_a_rebound_one_ends_the_others(art, tmp_path, server):
    names, promises = Names("forgets"), promises_of({DEFAULT_SPACE: Space(art)})

    async def refuse():
        link = await connected(server.urls)
        config = {"name": names.memory, "subjects": ["$KV.forgets-memory.>"], "max_age": 10**12, "discard": "new"}
        await link.api(f"STREAM.CREATE.{names.memory}", **config)
        try:
            with pytest.raises(InputError, match="a memory that is lost is a second draw"):
                await prepare(link, NatsSettings(key_file(), names=names), promises)
        finally:
            await link.close()

    asyncio.run(refuse())
    running = Running(art, server.urls, "rebound", partitions=1)
    with running, Running(artefact(tmp_path / "new.veil", seed=9), server.urls, "rebound", rebind=True):
        wait_until(lambda: running.error is not None, what="the end of the worker with the old policy")
    assert "another policy" in str(running.error)
