"""Certificates: lower bounds that hold for every causal release mechanism. The proof is in `witness`."""

from veilstream.solvers.bounds.certify import Certificate, Ending, certify
from veilstream.solvers.bounds.solutions import certify_curve, certify_solution
from veilstream.solvers.bounds.witness import Witness

__all__ = ["Certificate", "Ending", "Witness", "certify", "certify_curve", "certify_solution"]
