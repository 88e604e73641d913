"""The HTTP gateway: who may ask, what is refused, what the page shows."""

import asyncio
import json
import re
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection

import pytest
from aiohttp.test_utils import make_mocked_request

import axe
from browser import chromium
from gatewaykit import artefact, core_of, places
from httpkit import Server
from patience import PATIENCE_S, wait_until
from veilstream.errors import InputError
from veilstream.gateway.guard import HEADERS, HttpSettings
from veilstream.gateway.http import KEEP_ALIVE_S, HttpGateway
from veilstream.gateway.records import StoreError

TOKEN = "a token of decent length"


@pytest.fixture
def server(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db", ceiling=40.0, max_bytes=100_000) as core:
        made = Server(core)
        yield made
        made.end()


@pytest.fixture
def guarded(tmp_path):
    with core_of(artefact(tmp_path / "p.veil")) as core:
        made = Server(core, token=TOKEN)
        yield made
        made.end()


def test_an_array_is_answered_item_by_item(server):
    first = server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})[1]
    code, many, _ = server.ask("/v1/release", [{"stream": "a", "t": t, "value": 3} for t in (1, 2, 0)])
    assert code == 200 and many[0] == first and many[1]["t"] == 2 and many[2]["refused"] == "late"
    assert server.ask("/v1/release", {"stream": "a", "t": 0, "value": 3})[0] == 409
    assert server.ask("/v1/release", [])[1] == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 50_000, 400),
        (b"x" * 200_000, 413),
        (b'{"stream":"a","value":1}', 400),
        (b'{"t":1,"value":1}', 400),
        (b'{"stream":"a","t":1,"value":NaN}', 200),
        (b'{"stream":"a","t":1}', 200),
    ],
)
def test_faults(server, body, code):
    found, answer, headers = server.ask("/v1/release", body)
    assert found == code
    assert headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    assert ("error" in answer) == (code != 200)


def test_limits_and_methods(server):
    assert server.ask("/v1/release")[0] == 405
    assert server.ask("/nowhere")[0] == 404
    assert server.ask("/v1/release", b"{}", **{"Content-Type": "text/plain"})[0] == 415
    connection = HTTPConnection("127.0.0.1", server.gateway.port, timeout=PATIENCE_S)
    connection.putrequest("POST", "/v1/release")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(10**10))
    connection.endheaders()
    connection.send(b"x" * 300_000)
    assert connection.getresponse().status == 413
    connection.close()


def test_health_metrics_openapi_status(server):
    assert server.ask("/healthz")[:2] == (200, {"status": "ok"})
    server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})
    metrics = server.ask("/metrics")[1]
    assert "veil_releases_total 1.0\n" in metrics
    for line in metrics.splitlines():
        told = (
            r'# HELP veil_\w+ .*|# TYPE veil_\w+ (counter|gauge|histogram)|veil_\w+({(reason|le)="[\w.+]+"})? [\d.e-]+'
        )
        assert re.fullmatch(told, line), line
    api = server.ask("/openapi.json")[1]
    assert api["openapi"].startswith("3.")
    paths = {r.resource.canonical for r in server.gateway.app().router.routes()}
    assert set(api["paths"]) == {p for p in paths if p not in ("/", "/status.js", "/status.css", "/icon.svg")}
    status = server.ask("/v1/status")[1]
    assert (status["streams"], status["ceiling_bits"], status["recent"][0]["stream"]) == (1, 40.0, "a")


def test_a_store_that_fails_is_503_and_unhealthy(server):
    server.core.store.file.db.execute("PRAGMA query_only = ON")
    assert server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})[0] == 503
    assert server.ask("/healthz")[0] == 503
    server.core.store.file.db.execute("PRAGMA query_only = OFF")
    assert server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})[0] == 200


def test_many_requests_share_commits(server):
    def ask(i: int) -> None:
        for t in range(10):
            codes.append(server.ask("/v1/release", {"stream": f"s{i}", "t": t, "value": 3})[0])

    codes: list[int] = []
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 160
    assert server.core.stats.released == 160
    assert server.core.stats.commit.n < 160


# --- who may ask -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [None, "Bearer wrong token of some length", "Bearer ", TOKEN[:-1], TOKEN, f"Bearer Bearer {TOKEN}", "Bearer é"],
)
def test_without_the_token_nothing_is_told(guarded, given):
    headers = {"Authorization": given.encode().decode("latin-1")} if given else {}
    for path, body in [
        ("/v1/release", {"stream": "a", "t": 1, "value": 3}),
        ("/v1/status", None),
        ("/v1/events", None),
        ("/metrics", None),
    ]:
        assert guarded.ask(path, body, **headers)[0] == 401
    assert guarded.core.stats.released == 0
    assert guarded.ask("/", **headers)[0] == 200  # the empty page


def test_with_the_token_everything_is(guarded):
    headers = {"Authorization": f"bearer {TOKEN}"}  # the scheme is not a secret: upper or lower case
    assert guarded.ask("/v1/release", {"stream": "a", "t": 1, "value": 3}, **headers)[0] == 200
    assert guarded.ask("/v1/status", **headers)[0] == 200


@pytest.mark.parametrize(
    ("remote", "host"),
    [("192.0.2.7", "127.0.0.1:8080"), ("127.0.0.1", "evil.example"), ("::ffff:192.0.2.7", "[::1]:8080")],
)
def test_a_foreign_address_or_host_without_a_token_is_401(tmp_path, remote, host):
    """From elsewhere, or from a web page in a local browser that calls us by another name."""
    with core_of(artefact(tmp_path / "p.veil")) as core:
        gateway = HttpGateway(core, HttpSettings(0))
        for path in ("/v1/status", "/v1/release", "/"):
            request = make_mocked_request("GET", path, {"Host": host}).clone(remote=remote)
            assert gateway.guard.refusal(request).status == 401
        local = make_mocked_request("GET", "/v1/status", {"Host": "localhost:8080"}).clone(remote="127.0.0.1")
        assert gateway.guard.refusal(local) is None
        guarded = HttpGateway(core, HttpSettings(0, "0.0.0.0", TOKEN))
        wrong = make_mocked_request("POST", "/v1/release", {"Authorization": "Bearer no"}).clone(remote=remote)
        assert guarded.guard.refusal(wrong).status == 401


def test_listening_elsewhere_needs_a_token():
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "::"):
        with pytest.raises(InputError, match="token"):
            HttpSettings(8080, host)
    with pytest.raises(InputError, match="16 characters"):
        HttpSettings(8080, token="short")
    assert TOKEN not in repr(HttpSettings(8080, token=TOKEN))


def test_a_port_in_use_is_one_line(server, tmp_path):
    other = HttpGateway(server.core, HttpSettings(server.gateway.port))
    with pytest.raises(InputError, match="cannot listen"):
        asyncio.run(other._serve(threading.Event()))


def test_the_answer_waits_for_the_commit(server, monkeypatch):
    """No release is seen that is not in the log."""
    commit = server.core.store.commit

    def fails(batch):
        monkeypatch.setattr(server.core.store, "commit", commit)
        raise StoreError("no")

    monkeypatch.setattr(server.core.store, "commit", fails)
    assert server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})[0] == 503
    _, first, _ = server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})
    assert (
        server.core.store.find(server.core.store.load("", "a"), 1)[0]
        == json.dumps(first, separators=(",", ":")).encode()
    )


# --- the page ----------------------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path):
    with chromium(tmp_path / "profile") as opened:
        yield opened


@pytest.mark.browser
def test_the_page_in_a_browser(tmp_path, browser):
    """Live numbers and map, a token by hand or after #, no violation of the policy, no foreign request, no truth."""
    from selenium.webdriver.common.by import By

    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    seen = lambda name: browser.find_element(By.ID, name).text  # noqa: E731
    with core_of(art, tmp_path / "s.db", ceiling=12.0, now=lambda: 1_700_000_000.0) as core:
        server = Server(core, token=TOKEN)
        try:
            browser.get(server.url)
            wait_until(lambda: "token is needed" in seen("link"))
            browser.find_element(By.ID, "token").send_keys("wrong")
            browser.find_element(By.CSS_SELECTOR, "#login button").click()
            wait_until(lambda: "wrong token" in seen("link"))
            browser.find_element(By.ID, "token").clear()
            browser.find_element(By.ID, "token").send_keys(TOKEN)
            browser.find_element(By.CSS_SELECTOR, "#login button").click()
            wait_until(lambda: seen("link") == "live")
            secret = [
                {"stream": f"phone {i}<b>", "t": 1_699_999_000 + 60 * t, "lat": 39.912345678, "lon": 116.31}
                for i in range(7)
                for t in range(i + 1)
            ]
            code, _, _ = server.ask("/v1/release", secret, Authorization=f"Bearer {TOKEN}")
            assert code == 200
            wait_until(lambda: seen("streams") == "7" and seen("released") == "28")
            assert "phone 6<b>" in seen("rows")  # as text
            assert len(browser.find_elements(By.TAG_NAME, "progress")) == 7
            assert 1 <= len(browser.find_elements(By.CSS_SELECTOR, "#map circle")) <= 7
            assert "12 bits" in seen("ceiling")
            assert "912345" not in browser.page_source
            browser.save_screenshot(str(tmp_path / "page.png"))
            browser.get("about:blank")
            browser.get(f"{server.url}/#{TOKEN.replace(' ', '%20')}")
            wait_until(lambda: seen("link") == "live" and seen("streams") == "7")
            before = [e for e in browser.get_log("browser") if "401" not in e["message"]]
            assert before == []
            sent = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
            asked = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
            asked = {u for u in asked if u.startswith(("http", "ws"))}  # not the browser's own start page
            assert asked
            assert all(u.startswith(server.url + "/") for u in asked), asked
            assert axe.findings(browser) == {}
            browser.execute_script(
                "const s = document.createElement('script'); s.textContent = 'window.broken = 1';"
                "document.body.append(s); new Image().src = 'http://127.0.0.1:1/x.png';"
            )
            assert browser.execute_script("return window.broken") is None  # the policy holds
            wait_until(lambda: any("Content Security Policy" in e["message"] for e in browser.get_log("browser")))
        finally:
            server.end()
        wait_until(lambda: "lost" in seen("link"))


def test_events_are_the_status_and_nothing_else(server):
    server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(server.url + "/v1/events", timeout=PATIENCE_S) as stream:
        line = stream.readline()
        assert stream.headers["Content-Type"] == "text/event-stream"
    event = json.loads(line.removeprefix(b"data: "))
    assert set(event) == set(server.ask("/v1/status")[1])
    started = time.monotonic()
    server.end()
    assert time.monotonic() - started < KEEP_ALIVE_S / 2  # an open page does not hold up the end


# --- Home Assistant's proxy --------------------------------------------------------------------------------

PROXY = "127.0.0.9"


def ask_from(server, source: str, method: str, path: str, host: str = "home.example") -> tuple[int, str]:
    """Status and who may show it in a frame."""
    connection = HTTPConnection("127.0.0.1", server.gateway.port, timeout=PATIENCE_S, source_address=(source, 0))
    headers = {"Host": host, "X-Ingress-Path": "/api/hassio_ingress/x", "Content-Type": "application/json"}
    connection.request(method, path, b"{}" if method == "POST" else None, headers)
    answer = connection.getresponse()
    found = answer.status, re.search(r"frame-ancestors ('\w+')", answer.headers["Content-Security-Policy"])[1]
    connection.close()
    return found


@pytest.mark.parametrize("token", [TOKEN, None])
def test_a_proxy_may_look_in_a_frame_and_nothing_else(tmp_path, token):
    with core_of(artefact(tmp_path / "p.veil")) as core:
        server = Server(core, token=token, ingress=PROXY)
        try:
            for path in ("/", "/status.js", "/v1/status", "/metrics", "/healthz"):
                assert ask_from(server, PROXY, "GET", path) == (200, "'self'")
            assert ask_from(server, PROXY, "POST", "/v1/release") == (401, "'none'")
            assert ask_from(server, "127.0.0.8", "GET", "/v1/status") == (401, "'none'")  # whatever its headers say
            assert ask_from(server, "127.0.0.8", "GET", "/", "localhost") == (200, "'none'")
        finally:
            server.end()


def test_only_a_proxys_address_lets_others_in_without_a_token():
    assert HttpSettings(0, "0.0.0.0", ingress="172.30.32.2").token is None
    for bad in ("", "home", "172.30.32.0/23", "*"):
        with pytest.raises(InputError, match="address of a proxy"):
            HttpSettings(0, "0.0.0.0", ingress=bad)
