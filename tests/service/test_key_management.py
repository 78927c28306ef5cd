"""Keys through the API, the keys file while the service runs, keys limited to models, the audit log."""

import json
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from calibrant.cli import main as command
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.routes.export import without_secrets
from calibrant_server.service.security import keys as keys_module
from calibrant_server.service.security.key_file import KeysUnreadable, add_key, hash_of, read_keys
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.access_keys import TooManyKeys
from tests.service.conftest import PREDICTIONS, client_of, problem
from tests.service.fakes import unavailable

pytestmark = pytest.mark.anyio
ALL = ["ingest", "read", "maps:read", "admin"]


def entry(secret: str, *scopes: str, tenant: str = "default", **members) -> dict:
    return {
        "sha256": hash_of(secret),
        "name": secret,
        "tenant": tenant,
        "scopes": list(scopes),
        **members,
    }


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys.json"
    entries = [entry("ann", *ALL), entry("bob", *ALL, tenant="other"), entry("reader", "read")]
    path.write_text(json.dumps({"keys": entries}))
    return path


@pytest.fixture
def app(keys_file, tmp_path, inbox, registry):
    settings = Settings(data_dir=tmp_path, keys_file=keys_file, log_requests=False)
    return create_app(settings, Connection(inbox, registry))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def created(client, key: str = "ann", **members) -> dict:
    answer = await client.post(
        "/v1/keys", headers=bearer(key), json={"name": "site-a", "scopes": ["ingest"], **members}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_created_key_works_until_it_is_revoked(client, inbox):
    made = await created(client, scopes=["read", "ingest"])
    assert made["secret"].startswith("ck_") and made["scopes"] == ["ingest", "read"]
    assert (await client.get("/v1/models", headers=bearer(made["secret"]))).status_code == 200
    forbidden = await client.get("/v1/keys", headers=bearer(made["secret"]))
    problem(forbidden, 403, "scope-missing")
    stored = orjson.dumps(inbox.access_keys.entries).decode()
    assert made["secret"] not in stored and hash_of(made["secret"]) in stored
    revoked = await client.delete(f"/v1/keys/{made['id']}", headers=bearer("ann"))
    assert (revoked.status_code, revoked.content) == (204, b"")
    problem(await client.get("/v1/models", headers=bearer(made["secret"])), 401, "key-unknown")
    again = await client.delete(f"/v1/keys/{made['id']}", headers=bearer("ann"))
    problem(again, 404, "key-id-unknown")


async def test_the_secret_is_not_listed_and_pages_follow_each_other(client):
    made = [await created(client, name=f"n{i}") for i in range(3)]
    first = (await client.get("/v1/keys?limit=3", headers=bearer("ann"))).json()
    second = (await client.get(f"/v1/keys?cursor={first['next']}", headers=bearer("ann"))).json()
    found = first["keys"] + second["keys"]
    assert second["next"] is None and len(found) == 5
    assert {each["source"] for each in found} == {"configured", "created"}
    assert "secret" not in found[0] and "sha256" not in found[0]
    names = {each["name"] for each in found}
    assert names == {"ann", "reader", "n0", "n1", "n2"}, "of the own tenant only"
    for each in made:
        assert each["secret"] not in json.dumps(found)


async def test_another_tenants_key_can_be_neither_seen_nor_revoked(client):
    made = await created(client)
    answer = await client.delete(f"/v1/keys/{made['id']}", headers=bearer("bob"))
    problem(answer, 404, "key-id-unknown")
    assert made["id"] not in (await client.get("/v1/keys", headers=bearer("bob"))).text


async def test_a_configured_key_is_removed_in_its_file(client):
    [ann] = [
        each
        for each in (await client.get("/v1/keys", headers=bearer("ann"))).json()["keys"]
        if each["name"] == "ann"
    ]
    answer = await client.delete(f"/v1/keys/{ann['id']}", headers=bearer("ann"))
    problem(answer, 409, "key-configured")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "", "scopes": ["read"]}, "/name"),
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x", "scopes": ["root"]}, "/scopes/0"),
        ({"name": "x", "scopes": ["read"], "models": ["a/b"]}, "/models/0"),
        ({"name": "x", "scopes": ["read"], "models": []}, "/models"),
        ({"name": "x", "scopes": ["read"], "expires_at": "2026-01-01T00:00:00"}, "/expires_at"),
        ({"name": "x", "scopes": ["read"], "expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "x", "scopes": ["read"], "tenant": "other"}, "/tenant"),
    ],
)
async def test_invalid_keys(client, body, pointer):
    found = problem(
        await client.post("/v1/keys", headers=bearer("ann"), json=body), 422, "invalid-input"
    )
    assert found["errors"][0]["pointer"] == pointer


async def test_a_key_expires(client, monkeypatch):
    later = datetime.now(UTC) + timedelta(hours=1)
    made = await created(client, scopes=["read"], expires_at=later.isoformat())
    assert (await client.get("/v1/models", headers=bearer(made["secret"]))).status_code == 200

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return later

    monkeypatch.setattr(keys_module, "datetime", Clock)
    answer = await client.get("/v1/models", headers=bearer(made["secret"]))
    assert "expired" in problem(answer, 401, "key-unknown")["detail"]


async def test_a_tenant_has_a_maximum_of_keys(client, inbox):
    async def full(*args):
        raise TooManyKeys("default")

    inbox.access_keys.add = full
    answer = await client.post(
        "/v1/keys", headers=bearer("ann"), json={"name": "x", "scopes": ["read"]}
    )
    problem(answer, 429, "quota-full")
    assert answer.headers["retry-after"] == "60"


async def test_without_keys_there_are_none_to_manage(tmp_path, inbox, registry):
    app = create_app(Settings(data_dir=tmp_path, log_requests=False), Connection(inbox, registry))
    async with client_of(app) as client:
        found = problem(await client.get("/v1/keys"), 403, "keys-not-configured")
        assert "calibrant keys create" in found["detail"]
        body = {"name": "x", "scopes": ["read"]}
        problem(await client.post("/v1/keys", json=body), 403, "keys-not-configured")
        answer = await client.delete("/v1/keys/k_0123456789abcdef")
        problem(answer, 403, "keys-not-configured")


class TestMakers:
    """A new key has at most what its maker has: a limit of an admin key would bind nothing otherwise."""

    async def test_it_has_no_scope_that_its_maker_lacks(self, client):
        narrow = await created(client, scopes=["admin", "read"])
        wider = {"name": "wider", "scopes": ["read", "ingest", "maps:read"]}
        answer = await client.post("/v1/keys", headers=bearer(narrow["secret"]), json=wider)
        found = problem(answer, 422, "invalid-input")
        assert [each["pointer"] for each in found["errors"]] == ["/scopes/1", "/scopes/2"]
        made = await created(client, narrow["secret"], scopes=["read", "admin"])
        assert made["created_by"] == narrow["id"]

    async def test_it_expires_with_its_maker_or_before(self, client):
        soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
        maker = await created(client, scopes=ALL, expires_at=soon.isoformat())
        same = await created(client, maker["secret"])
        assert datetime.fromisoformat(same["expires_at"]) == soon
        sooner = (soon - timedelta(hours=1)).isoformat()
        earlier = await created(client, maker["secret"], expires_at=sooner)
        assert datetime.fromisoformat(earlier["expires_at"]) == soon - timedelta(hours=1)
        later = {
            "name": "x",
            "scopes": ["read"],
            "expires_at": (soon + timedelta(seconds=1)).isoformat(),
        }
        answer = await client.post("/v1/keys", headers=bearer(maker["secret"]), json=later)
        [error] = problem(answer, 422, "invalid-input")["errors"]
        assert (error["pointer"], error["rule"]) == ("/expires_at", "expiry_of_key")

    async def test_its_descendants_are_revoked_with_it_if_requested(self, client):
        first = await created(client, scopes=ALL)
        second = await created(client, first["secret"], scopes=ALL)
        third = await created(client, second["secret"], scopes=ALL)
        other = await created(client, scopes=ALL)
        for given, opened in (("", (second, third, other)), ("?descendants=true", (other,))):
            revoked = second if given else first
            answer = await client.delete(f"/v1/keys/{revoked['id']}{given}", headers=bearer("ann"))
            assert answer.status_code == 204
            for each in (first, second, third, other):
                status = (
                    await client.get("/v1/models", headers=bearer(each["secret"]))
                ).status_code
                assert status == (200 if each in opened else 401)

    async def test_a_new_key_does_not_have_all_keys_validated_again(self, client, monkeypatch):
        for _ in range(5):
            await created(client)
        validated, validate = [], keys_module.ApiKey.model_validate
        monkeypatch.setattr(
            keys_module.ApiKey,
            "model_validate",
            lambda each: validated.append(each) or validate(each),
        )
        made = await created(client, scopes=["read"])
        assert len(validated) == 1
        assert (await client.get("/v1/models", headers=bearer(made["secret"]))).status_code == 200


class TestModels:
    """A key that is limited to some models."""

    @pytest.fixture
    async def limited(self, client):
        for model in ("site-a.x", "site-b.x", "exact"):
            answer = await client.put(
                f"/v1/models/{model}", headers=bearer("ann"), json={"classes": 3}
            )
            assert answer.status_code == 201
        made = await created(client, scopes=ALL, models=["site-a.*", "exact"])
        return bearer(made["secret"])

    async def test_it_sees_these_models_only(self, client, limited):
        listed = (await client.get("/v1/models", headers=limited)).json()["models"]
        assert [each["model"] for each in listed] == ["exact", "site-a.x"]
        assert (await client.get("/v1/models/site-a.x", headers=limited)).status_code == 200
        for model in ("site-b.x", "exact2", "nothing"):
            problem(await client.get(f"/v1/models/{model}", headers=limited), 404, "model-unknown")
            posted = await client.post(
                f"/v1/models/{model}/predictions", headers=limited, json=PREDICTIONS
            )
            problem(posted, 404, "model-unknown")

    async def test_it_cannot_name_others_in_a_query(self, client, limited):
        for query in ("comparison?models=site-b.x", "metrics?against=model:site-b.x"):
            answer = await client.get(f"/v1/models/site-a.x/{query}", headers=limited)
            problem(answer, 404, "model-unknown")

    async def test_it_manages_no_keys_and_reads_no_audit_log(self, client, limited):
        for url in ("/v1/keys", "/v1/audit"):
            answer = await client.get(url, headers=limited)
            problem(answer, 403, "key-limited-to-models")


class TestFile:
    """The keys file while the service runs."""

    async def test_changes_are_read_without_a_restart(self, app, client, keys_file):
        await app.state.key_refresh.look()
        secret = add_key(keys_file, name="new", scopes=("read",))
        problem(await client.get("/v1/models", headers=bearer(secret)), 401, "key-unknown")
        await app.state.key_refresh.look()
        assert (await client.get("/v1/models", headers=bearer(secret))).status_code == 200
        document = json.loads(keys_file.read_text())
        document["keys"] = [each for each in document["keys"] if each["name"] != "new"]
        keys_file.write_text(json.dumps(document))
        await app.state.key_refresh.look()
        problem(await client.get("/v1/models", headers=bearer(secret)), 401, "key-unknown")

    @pytest.mark.parametrize("content", ["{}", '{"keys": []}', "{", None])
    async def test_an_unreadable_file_changes_nothing(
        self, app, client, keys_file, content, caplog
    ):
        await app.state.key_refresh.look()
        if content is None:
            keys_file.unlink()
        else:
            keys_file.write_text(content)
        for _ in range(3):
            await app.state.key_refresh.look()
        assert (await client.get("/v1/models", headers=bearer("ann"))).status_code == 200
        errors = [each for each in caplog.records if "keys_not_refreshed" in each.message]
        assert len(errors) == 1

    async def test_another_process_sees_a_created_key(
        self, app, client, keys_file, tmp_path, inbox, registry
    ):
        settings = Settings(data_dir=tmp_path, keys_file=keys_file, log_requests=False)
        other = create_app(settings, Connection(inbox, registry))
        made = await created(client, scopes=["read"])
        async with client_of(other, headers=bearer(made["secret"])) as theirs:
            problem(await theirs.get("/v1/models"), 401, "key-unknown")
            await other.state.key_refresh.look()
            assert (await theirs.get("/v1/models")).status_code == 200
            await client.delete(f"/v1/keys/{made['id']}", headers=bearer("ann"))
            await other.state.key_refresh.look()
            problem(await theirs.get("/v1/models"), 401, "key-unknown")

    def test_changes_are_looked_for_often_enough(self):
        """Two looks and a time-out of the store are within 5 s."""
        from calibrant_server.service.security.key_file import REFRESH_S
        from calibrant_server.workers.settings import EngineSettings

        assert REFRESH_S + EngineSettings().socket_timeout_s <= 5

    async def test_a_store_that_is_away_changes_nothing(self, app, client, inbox):
        await app.state.key_refresh.look()

        async def away():
            raise unavailable()

        inbox.access_keys.changes = away
        await app.state.key_refresh.look()
        assert (await client.get("/v1/models", headers=bearer("ann"))).status_code == 200


class TestCommand:
    """`calibrant keys create`."""

    def test_it_adds_a_key_and_keeps_the_others(self, tmp_path, capsys, monkeypatch):
        path = tmp_path / "new" / "keys.json"
        monkeypatch.setenv("CALIBRANT_KEYS_FILE", str(path))
        command(["keys", "create", "--name", "first"])
        first = capsys.readouterr().out.strip()
        command(
            [
                "keys",
                "create",
                "--name",
                "second",
                "--tenant",
                "t",
                "--scope",
                "read",
                "--model",
                "a.*",
                "--expires-at",
                "2030-01-01T00:00:00Z",
            ]
        )
        second = capsys.readouterr().out.strip()
        found = read_keys(path)
        assert [each.sha256 for each in found] == [hash_of(first), hash_of(second)]
        assert (found[1].tenant, found[1].scopes, found[1].models) == ("t", ("read",), ("a.*",))
        assert path.stat().st_mode & 0o777 == 0o600
        assert [each.name for each in path.parent.iterdir() if ".new" in each.name] == []

    @pytest.mark.parametrize("arguments", [["--tenant", "a b"], ["--expires-at", "soon"]])
    def test_invalid_members_are_reported(self, tmp_path, monkeypatch, arguments):
        monkeypatch.setenv("CALIBRANT_KEYS_FILE", str(tmp_path / "keys.json"))
        with pytest.raises(SystemExit, match="calibrant: "):
            command(["keys", "create", "--name", "x", *arguments])
        assert not (tmp_path / "keys.json").exists()

    def test_a_damaged_file_is_kept(self, tmp_path):
        path = tmp_path / "keys.json"
        path.write_text("{")
        with pytest.raises(KeysUnreadable):
            add_key(path, name="x")
        assert path.read_text() == "{"


class TestAudit:
    """Who changed what."""

    async def entries(self, client, **query) -> list[dict]:
        answer = await client.get("/v1/audit", headers=bearer("ann"), params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["entries"]

    async def test_changes_of_settings_are_recorded_with_the_key(self, client):
        url, headers = "/v1/models/digits", bearer("ann")
        hook = {"url": "https://pager.example.org/path-is-a-secret"}
        body = {"classes": 3, "label_horizon": "P7D", "alarm": {"tolerance": 0.02}}
        made = await client.put(url, headers=headers, json=body)
        tag = {"If-Match": made.headers["etag"]}
        patch = {"alarm": {"tolerance": 0.05, "webhooks": [hook]}}
        changed = await client.patch(url, headers=headers | tag, json=patch)
        assert changed.status_code == 200, changed.text
        newest, oldest = await self.entries(client)
        assert (oldest["action"], oldest["status"]) == ("putModel", 201)
        assert (newest["action"], newest["subject"]) == ("patchModel", {"model": "digits"})
        assert newest["key"]["name"] == "ann" and newest["key"]["id"].startswith("k_")
        found = newest["details"]["changed"]
        assert found["alarm.tolerance"] == {"from": 0.02, "to": 0.05}
        assert "alarm.webhooks" in found
        assert "whsec" not in json.dumps(newest, ensure_ascii=False).replace("whsec_…", "")
        assert "path-is-a-secret" not in json.dumps(newest)

    async def test_every_kind_of_change_is_recorded(self, client):
        made = await created(client)
        await client.delete(f"/v1/keys/{made['id']}", headers=bearer("ann"))
        await client.put("/v1/models/m", headers=bearer("ann"), json={"classes": 3})
        await client.delete("/v1/models/m", headers=bearer("ann"))
        found = await self.entries(client)
        assert [each["action"] for each in found] == [
            "deleteModel",
            "putModel",
            "revokeKey",
            "createKey",
        ]
        assert made["secret"] not in json.dumps(found)
        assert found[2]["subject"] == {"key": made["id"]}
        assert found[3]["details"]["id"] == made["id"]

    async def test_rejected_changes_and_reads_are_not(self, client, inbox):
        await client.put("/v1/models/m", headers=bearer("ann"), json={"classes": 1})
        await client.put("/v1/models/m", headers=bearer("reader"), json={"classes": 3})
        await client.get("/v1/models", headers=bearer("ann"))
        assert inbox.audit.logs == {}

    async def test_pages_and_the_export_hold_every_entry_once(self, client):
        for i in range(5):
            await client.put(f"/v1/models/m{i}", headers=bearer("ann"), json={"classes": 3})
        found, cursor = [], {"limit": 2}
        for _ in range(3):
            answer = await client.get("/v1/audit", headers=bearer("ann"), params=cursor)
            found += answer.json()["entries"]
            cursor = {"limit": 2, "cursor": answer.json()["next"]}
        assert cursor["cursor"] is None
        assert [each["subject"]["model"] for each in found] == ["m4", "m3", "m2", "m1", "m0"]
        exported = await client.get(
            "/v1/audit", headers=bearer("ann") | {"Accept": "application/x-ndjson"}
        )
        lines = [json.loads(line) for line in exported.text.splitlines()]
        assert lines == found[::-1]
        assert (await client.get("/v1/audit", headers=bearer("bob"))).json()["entries"] == []
        wrong = await client.get("/v1/audit?cursor=WyIrIl0", headers=bearer("ann"))
        problem(wrong, 422, "invalid-query")

    async def test_a_change_is_not_acknowledged_before_it_is_recorded(self, client, inbox):
        inbox.audit.trouble = unavailable()
        answer = await client.put("/v1/models/m", headers=bearer("ann"), json={"classes": 3})
        problem(answer, 503, "store-unavailable")


async def test_an_acknowledgement_is_by_the_key(client):
    answer = await client.post(
        "/v1/alarms/a/acknowledge", headers=bearer("ann"), json={"by": "somebody else"}
    )
    assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/by"


FIRST = {
    "type": "model",
    "format": 1,
    "configuration": {
        "alarm": {
            "tolerance": 0.02,
            "webhooks": [{"url": "https://a.example.org/x", "secret": "whsec_x"}],
        }
    },
}


class TestExport:
    """Secrets of webhooks in an export."""

    def test_it_has_none_unless_requested(self):
        shown = without_secrets(FIRST)
        assert "whsec" not in json.dumps(shown)
        assert shown["configuration"]["alarm"] == {
            "tolerance": 0.02,
            "webhooks": [{"url": "https://a.example.org/x"}],
        }
        assert "whsec_x" in json.dumps(FIRST), "the model itself is unchanged"

    async def test_it_says_that_addresses_are_complete(self, client):
        """For some chat services the address is the secret."""
        path = (await client.get("/openapi.json")).json()["paths"]["/v1/models/{model}/export"]
        [secrets] = [each for each in path["get"]["parameters"] if each.get("name") == "secrets"]
        assert "complete addresses of webhooks are exported in both cases" in secrets["description"]
        assert path["get"]["x-scopes"] == ["admin"], "other scopes see the host only"

    def test_other_lines_are_unchanged(self):
        pane = {"type": "pane", "slice": "", "packed": {}}
        assert without_secrets(pane) is pane
