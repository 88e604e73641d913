"""Policies that are trained: all that needs JAX or Gymnasium. The solvers know these methods by name only."""
