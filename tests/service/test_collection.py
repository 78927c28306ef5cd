"""A collection is one declaration: routes, parameters, pages, scopes and document follow from it."""

from typing import Annotated

import httpx
import pytest
from fastapi import Path
from pydantic import BaseModel

from calibrant_server.service.http.problems import BatchUnknown
from calibrant_server.service.openapi.schema import document
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import Access, Admin, Operations, Reader

router = Operations("models")


class Note(BaseModel):
    """A note."""

    id: str


NOTE = ("note", Annotated[str, Path(pattern="^[a-z]$")])
NOTES = Collection(router, "/v1/models/{model}/notes", "notes", Note, Reader, "A page of notes")
STORED = ["c", "a", "b"]


@NOTES.lists()
async def list_notes(access: Access):
    """List the notes of a model."""
    await access.config()
    return NOTES.paged(access, STORED, lambda each: [each], lambda each: {"id": each})


@NOTES.returns(NOTE, "The note")
async def get_note(access: Access):
    """Return a note."""
    if access.id not in STORED:
        raise BatchUnknown()
    return {"id": access.id}


@NOTES.deletes(NOTE, "The note is deleted", Admin)
async def delete_note(access: Access):
    """Delete a note."""
    STORED.remove(access.id)


pytestmark = pytest.mark.anyio
URL = "/v1/models/m/notes"


@pytest.fixture
async def noted(app):
    app.include_router(router)
    app.state.routes += router.routes
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.put("/v1/models/m", json={"classes": 2})
        yield client


async def test_it_is_listed_in_pages_with_links_and_tags(noted):
    first = await noted.get(URL, params={"limit": 2})
    assert first.json()["notes"] == [{"id": "a"}, {"id": "b"}]
    rest = await noted.get(first.links["next"]["url"])
    assert rest.json() == {"notes": [{"id": "c"}], "next": None}
    again = await noted.get(
        URL, params={"limit": 2}, headers={"If-None-Match": first.headers["etag"]}
    )
    assert again.status_code == 304


async def test_entries_are_returned_and_deleted(noted, monkeypatch):
    monkeypatch.setitem(globals(), "STORED", ["a", "b"])
    assert (await noted.get(f"{URL}/a")).json() == {"id": "a"}
    assert (await noted.delete(f"{URL}/a")).status_code == 204
    assert (await noted.get(f"{URL}/a")).status_code == 404


async def test_parameters_are_checked(noted):
    for path in (f"{URL}?limit=0", f"{URL}?unknown=1", f"{URL}/UPPER"):
        assert (await noted.get(path)).status_code in (400, 422), path
    assert (await noted.get("/v1/models/other/notes")).status_code == 404


async def test_document_and_scopes_follow(noted, app):
    found = document(app)
    all_notes = found["paths"]["/v1/models/{model}/notes"]
    one = found["paths"]["/v1/models/{model}/notes/{note}"]
    assert all_notes["get"]["operationId"] == "listNotes"
    assert all_notes["get"]["x-scopes"] == one["get"]["x-scopes"] == ["read"]
    assert one["delete"]["x-scopes"] == ["admin"]
    listed = found["components"]["schemas"]["NotesResponse"]["properties"]
    assert listed["notes"]["items"] == {"$ref": "#/components/schemas/Note"}
