"""What an adversary really learns from a policy's releases: exactly, and by learning."""

from veilstream.audit.bayes import Beliefs, infer
from veilstream.audit.run import Audit, audit
from veilstream.audit.settings import Options
from veilstream.audit.traces import Traces, release, sampled
from veilstream.audit.verdict import Check, Claim, check, claim_of, verdict

__all__ = [
    "Audit",
    "Beliefs",
    "Check",
    "Claim",
    "Options",
    "Traces",
    "audit",
    "check",
    "claim_of",
    "infer",
    "release",
    "sampled",
    "verdict",
]
