"""Figures and pages: data in, picture out, no I/O."""
