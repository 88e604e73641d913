"""The description of the HTTP interface that GET /openapi.json returns."""

from typing import Any

import msgspec

import veilstream
from veilstream.gateway.wire import Release

_NUMBER, _TEXT = {"type": "number"}, {"type": "string"}


def _object(*required: str, **properties: object) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_TIME = {
    "description": "seconds since 1970, ISO 8601, or an integer step where the policy has no period",
    "oneOf": [_NUMBER, _TEXT],
}
READING = _object("stream", "t", stream={**_TEXT, "maxLength": 200}, t=_TIME, value=_NUMBER, lat=_NUMBER, lon=_NUMBER)
_ERROR = _object("error", error=_TEXT)
_REFUSED = _object("refused", "error", refused=_TEXT, error=_TEXT)
_SILENT = _object("released", released={"type": "null"})
_WAITING = _object("waiting", waiting={"const": True})
ERRORS = {
    "400": "not a reading",
    "401": "no token, or a wrong one",
    "408": "the body did not arrive in time",
    "409": "the step is closed, or too far ahead",
    "413": "larger than the limit",
    "415": "not application/json",
    "429": "too many streams",
    "503": "the store cannot be written; nothing was released",
}


def _answer(what: str, schema: object | None = None, kind: str = "application/json") -> dict[str, Any]:
    return {"description": what, **({"content": {kind: {"schema": schema}}} if schema is not None else {})}


def _get(what: str, kind: str = "application/json", **more: object) -> dict[str, Any]:
    responses = {"200": _answer(what, {}, kind), "401": _answer(ERRORS["401"], _ERROR)}
    return {"get": {"summary": what, "responses": responses, **more}}


def document() -> dict[str, Any]:
    (release,), components = msgspec.json.schema_components([Release], ref_template="#/components/schemas/{name}")
    components["Reading"] = READING
    reading = {"$ref": "#/components/schemas/Reading"}
    one = [release, _SILENT]
    many = {"type": "array", "items": {"anyOf": [*one, _WAITING, _REFUSED]}}
    post = {
        "summary": "A reading, or an array of them; the same step again gets the same release",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"oneOf": [reading, {"type": "array", "items": reading}]}}},
        },
        "responses": {
            "200": _answer(
                "the release (released: null where the step is silent), or one answer each", {"anyOf": [*one, many]}
            ),
            "202": _answer("accepted; the release comes with the clock", _SILENT),
            **{code: _answer(what, _ERROR) for code, what in ERRORS.items()},
        },
    }
    health = _get("whether the store can be written", security=[])
    health["get"]["responses"]["503"] = _answer("it cannot", {})
    return {
        "openapi": "3.1.0",
        "info": {"title": "veilstream gateway", "version": veilstream.__version__},
        "security": [{"token": []}, {}],
        "paths": {
            "/v1/release": {"post": post},
            "/v1/status": _get("counts and the last releases"),
            "/v1/events": _get("the same, live", "text/event-stream"),
            "/metrics": _get("Prometheus metrics", "text/plain"),
            "/healthz": health,
            "/openapi.json": _get("this", security=[]),
        },
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
