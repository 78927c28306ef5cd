"""`python -m service`."""

from calibrant_server.service.main import main

main()
