EXAMPLES = ""


def bench() -> None:
    """The benchmarks, as ratios."""
