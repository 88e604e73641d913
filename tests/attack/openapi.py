"""The HTTP interface as it describes itself: schemathesis makes requests of the description, good ones and bad ones."""

from hypothesis import HealthCheck, Phase, given, seed, settings

from attack.drill import Trial
from gatewaykit import artefact, core_of
from httpkit import Server

ENDLESS = "/v1/events"  # answers until one goes


def served(t: Trial) -> int:
    """No answer is a failure of the server, and every answer is one that the description knows."""
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance, content_type_conformance]
    checks += [response_headers_conformance, response_schema_conformance]
    made = [0]
    with core_of(artefact(t.folder / "p.veil"), t.folder / "s.db") as core:
        server = Server(core)
        try:
            schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
            for operation in schema.get_all_operations():
                if operation.ok().path == ENDLESS:
                    continue
                post = operation.ok().method.upper() == "POST"
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if post else (GenerationMode.POSITIVE,):

                    @seed(t.rng.randrange(2**32))
                    @settings(
                        max_examples=t.times(60 if post else 5),
                        deadline=None,
                        database=None,
                        phases=[Phase.generate],
                        suppress_health_check=list(HealthCheck),
                    )
                    @given(case=operation.ok().as_strategy(generation_mode=mode))
                    def ask(case) -> None:
                        made[0] += 1
                        case.call_and_validate(base_url=server.url, checks=checks, timeout=10)

                    ask()
            assert server.ask("/healthz")[0] == 200 and core.stats.refused["unhandled"] == 0
        finally:
            server.end()
    return made[0]
