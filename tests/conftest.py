"""Before anything imports numpy or JAX, and for every process a test starts."""

import os

# the tests compile many small programs and run each for a moment
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# one process a core (pytest -n): threads of BLAS inside them would only wait for each other
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
