"""An HTTP gateway in a thread, and someone who asks it."""

import contextlib
import json
import threading
import urllib.error
import urllib.request

from veilstream.gateway.http import HttpGateway, HttpSettings


class Server:
    def __init__(self, core, routes=(), **settings) -> None:
        self.core, self.stop = core, threading.Event()
        self.gateway = HttpGateway(core, HttpSettings(0, **settings), routes)
        self.thread = threading.Thread(target=self.gateway.run, args=(self.stop,))
        self.thread.start()
        assert self.gateway.started.wait(10)
        self.url = f"http://127.0.0.1:{self.gateway.port}"

    def ask(self, path: str, body=None, **headers):
        """(status, decoded body, headers)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data, {**kind, **headers})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
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
