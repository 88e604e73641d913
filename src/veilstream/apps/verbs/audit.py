"""`vs.audit`: what adversaries learn from a policy's releases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from veilstream.audit.assemble import audit_artefact
from veilstream.audit.audiences import Audiences, audit_audiences
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.verdict import Assessment
from veilstream.control.frame_ladder import Framed
from veilstream.data.fit import read_as_fitted
from veilstream.data.spec import documented
from veilstream.errors import need
from veilstream.shown import Progress, watching
from veilstream.solvers.api import artefact_of

if TYPE_CHECKING:
    from veilstream.data.spec import Recording


def audit(
    policy: Any,
    data: Any = None,
    *,
    recording: Recording | None = None,
    spec: AuditSpec | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Assessment | Audiences:
    """What an adversary learns from the releases, on data drawn from the chain and on recorded data.

    policy is a `Solution`, an `Artefact` or the path of a policy file; data what `fit` takes, read and encoded as the
    model's was by default (recording: another way from readings to steps). Data later than what was fitted says whether
    the promise holds there and whether it still is the same person.

        >>> import veilstream as vs
        >>> found = vs.audit(vs.solve("builtin:binary", avg=0.1), against=["randomised-response"], streams=40, steps=90)
        >>> found
        <Assessment of causal-ba: the claim stands>
        >>> "randomised-response leaks" in found.words
        True

    spec holds the choices below, as an `AuditSpec`; those given by name win over it. With quick=False it also trains
    the paper's network (JAX, minutes), as `veil audit` does.

    CHOICES

    The `Assessment` has `.words`, `.stands`, `.warnings` and `.to_json()`, and so have the `Audiences` that come of a
    policy behind another: what each audience learns, and all of them together.
    """
    artefact = artefact_of(policy, "no policy file {!r}; make one with veil solve MODEL -o policy.veil")
    spec = replace(spec or AuditSpec(), **options)
    none = spec.quick or artefact.finer is not None or isinstance(artefact.policy, Framed)
    for library in () if none else ("jax", "optax"):
        need(library, "deep", "; or `quick=True`, which trains no network")
    given = None
    if data is not None:
        person = artefact.person
        given = Recorded.of(person, read_as_fitted(person.provenance, data, spec), recording)
    with watching("auditing", progress) as tell:
        if artefact.finer is not None:
            return audit_audiences(artefact, given, spec, progress=tell)
        return audit_artefact(artefact, given, spec, progress=tell)


documented(audit, AuditSpec)
audit.__name__ = "veilstream.audit"  # what `import veilstream.audit.assemble as r` looks for when it meets the verb
