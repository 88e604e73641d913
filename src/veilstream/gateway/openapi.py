"""The description of the HTTP interface that GET /openapi.json returns."""

from typing import Any

import msgspec

import veilstream
from veilstream.gateway.wire import Release

_NUMBER = {"type": "number"}
READING: dict[str, Any] = {
    "type": "object",
    "required": ["stream", "t"],
    "properties": {
        "stream": {"type": "string", "maxLength": 200},
        "t": {
            "description": "seconds since 1970, ISO 8601, or an integer step where the policy has no period",
            "oneOf": [_NUMBER, {"type": "string"}],
        },
        "value": _NUMBER,
        "lat": _NUMBER,
        "lon": _NUMBER,
    },
}
_ERROR: dict[str, Any] = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_REFUSED = {
    **_ERROR,
    "required": ["refused", "error"],
    "properties": {"refused": {"type": "string"}, **_ERROR["properties"]},
}
_SILENT = {"type": "object", "required": ["released"], "properties": {"released": {"type": "null"}}}
_WAITING = {"type": "object", "required": ["waiting"], "properties": {"waiting": {"const": True}}}
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


def document() -> dict[str, Any]:
    (release,), components = msgspec.json.schema_components([Release], ref_template="#/components/schemas/{name}")
    components["Reading"] = READING
    reading = {"$ref": "#/components/schemas/Reading"}

    def answer(what: str, schema: object | None = None, kind: str = "application/json") -> dict[str, Any]:
        return {"description": what, **({"content": {kind: {"schema": schema}}} if schema is not None else {})}

    def get(what: str, kind: str = "application/json", public: bool = False) -> dict[str, Any]:
        responses = {"200": answer(what, {}, kind), "401": answer(ERRORS["401"], _ERROR)}
        return {"get": {"summary": what, "responses": responses, **({"security": []} if public else {})}}

    health = get("whether the store can be written", public=True)
    health["get"]["responses"]["503"] = answer("it cannot", {})
    return {
        "openapi": "3.1.0",
        "info": {"title": "veilstream gateway", "version": veilstream.__version__},
        "security": [{"token": []}, {}],
        "paths": {
            "/v1/release": {
                "post": {
                    "summary": "A reading, or an array of them; the same step again gets the same release",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"oneOf": [reading, {"type": "array", "items": reading}]}}
                        },
                    },
                    "responses": {
                        "200": answer("the release (released: null where the step is silent), or one answer each", {
                            "anyOf": [
                                release,
                                _SILENT,
                                {"type": "array", "items": {"anyOf": [release, _SILENT, _WAITING, _REFUSED]}},
                            ]
                        }),
                        "202": answer("accepted; the release comes with the clock", _SILENT),
                        **{code: answer(what, _ERROR) for code, what in ERRORS.items()},
                    },
                }
            },
            "/v1/status": get("counts and the last releases"),
            "/v1/events": get("the same, live", "text/event-stream"),
            "/metrics": get("Prometheus metrics", "text/plain"),
            "/healthz": health,
            "/openapi.json": get("this", public=True),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip
