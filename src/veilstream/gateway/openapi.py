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
        found = {"summary": what, "responses": {"200": answer(what, {}, kind)}}
        return {"get": {**found, **({"security": []} if public else {})}}

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
                        "200": answer("the release (released is null where the step is silent)", {
                            "oneOf": [release, {"type": "array", "items": release}]
                        }),
                        "202": answer("accepted; the release comes with the clock"),
                        **{code: answer(what) for code, what in ERRORS.items()},
                    },
                }
            },
            "/v1/status": get("counts and the last releases"),
            "/v1/events": get("the same, live", "text/event-stream"),
            "/metrics": get("Prometheus metrics", "text/plain"),
            "/healthz": get("whether the store can be written", public=True),
            "/openapi.json": get("this", public=True),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip
