"""An HTTP gateway in a thread, and someone who asks it."""

import contextlib
import http.server
import json
import threading
import urllib.error
import urllib.request

from patience import PATIENCE_S
from veilstream.gateway.forward import Forwarder, ForwardSettings
from veilstream.gateway.guard import HttpSettings
from veilstream.gateway.http import HttpGateway


class Server:
    def __init__(self, core, routes=(), **settings) -> None:
        self.core, self.stop = core, threading.Event()
        self.gateway = HttpGateway(core, HttpSettings(0, **settings), routes)
        self.thread = threading.Thread(target=self.gateway.run, args=(self.stop,))
        self.thread.start()
        assert self.gateway.started.wait(PATIENCE_S)
        self.url = f"http://127.0.0.1:{self.gateway.port}"

    def ask(self, path: str, body=None, **headers):
        """(status, decoded body, headers)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data, {**kind, **headers})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
                code, found = answer.status, answer.headers
        except urllib.error.HTTPError as error:
            text, code, found = error.read().decode(), error.code, error.headers
        with contextlib.suppress(json.JSONDecodeError):
            text = json.loads(text)
        return code, text, found

    def end(self) -> None:
        self.stop.set()
        self.thread.join()


class Receiver:
    """A recorder: keeps what is posted to it, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict, dict]] = []  # path, headers, body
        self.answers: dict[str, int] = {}  # by user; others are answered 200
        self.asked = 0
        self.up = True
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.asked += 1
                code = receiver.answers.get(self.headers["X-Limit-U"], 200) if receiver.up else 503
                if code == 200:
                    receiver.got.append((self.path, dict(self.headers), body))
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/pub"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def bodies(self) -> list[dict]:
        return [body for _, _, body in self.got]

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def forwarding(core, url: str, **settings):
    """A forwarder in a thread."""
    made, stop = Forwarder(core, ForwardSettings(url, **settings)), threading.Event()
    core.outlets.append(made)
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()
        core.outlets.remove(made)


def post(url: str, body: object, user: str, device: str) -> tuple[int, bytes]:
    """As a phone does."""
    headers = {"Content-Type": "application/json", "X-Limit-U": user, "X-Limit-D": device}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=PATIENCE_S) as answer:
        return answer.status, answer.read()
