"""The reads that the library declares, one file each in `calibrant/results`."""

from fastapi import APIRouter, Response

from calibrant.results.reads import find_reads
from calibrant_server.service.reads.declared import add_route

router = APIRouter(default_response_class=Response)
for _read in find_reads().values():
    add_route(router, _read)
