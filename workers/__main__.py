"""`python -m workers`."""

import os
import sys

# Matrices here are small, and threads of a linear algebra library would wait for each other on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from workers.main import main

sys.exit(main())
