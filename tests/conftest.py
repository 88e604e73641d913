"""Before anything imports JAX: the tests compile many small programs and run each for a moment."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
