"""Benchmarks: each function returns a dict of figures measured in one run, ratios where the machine would decide."""
