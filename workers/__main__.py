"""`python -m workers`."""

import sys

from calibrant_server.workers.main import main

sys.exit(main())
