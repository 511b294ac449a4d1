"""Who may do what: keys, scopes, owners, and what is open to all."""

from __future__ import annotations

from typing import Any

import pytest

from core.auth import SCOPES, KeyStore
from tests.simulated_cloud.cloud import Cloud
from tests.support.problems import assert_problem
from tests.support.service import Service, make_key

UNKNOWN = f"rk_{'a' * 16}_{'0' * 64}"
OPEN = {"/health": "application/json", "/openapi.json": "application/json", "/docs": "text/html; charset=utf-8"}
METHODS = ("get", "post", "put", "patch", "delete")


def revoked(cloud: Cloud) -> str:
    token = make_key(cloud, "ana")
    assert KeyStore(cloud.table("Keys").meta.client, cloud.table("Keys").name).revoke(token.split("_")[1])
    return f"Bearer {token}"


def with_wrong_secret(cloud: Cloud) -> str:
    _, key_id, secret = make_key(cloud, "ana").split("_")
    return f"Bearer rk_{key_id}_{secret[::-1]}"


BAD_CREDENTIALS = {
    "none": lambda cloud: None,
    "empty": lambda cloud: "",
    "no token": lambda cloud: "Bearer",
    "no key": lambda cloud: "Bearer secret",
    "another scheme": lambda cloud: f"Basic {make_key(cloud, 'ana')}",
    "no scheme": lambda cloud: make_key(cloud, "ana"),
    "unknown": lambda cloud: f"Bearer {UNKNOWN}",
    "wrong secret": with_wrong_secret,
    "cut short": lambda cloud: f"Bearer {make_key(cloud, 'ana')[:-1]}",
    "revoked": revoked,
}


class TestKeys:
    @pytest.mark.parametrize("case", BAD_CREDENTIALS)
    def test_without_a_valid_key_nothing_is_answered(self, cloud: Cloud, case: str) -> None:
        """A missing, malformed, unknown, wrong or revoked key is a 401 that names the scheme to use."""
        authorization = BAD_CREDENTIALS[case](cloud)
        headers = {} if authorization is None else {"Authorization": authorization}
        answer = cloud.request("GET", "/jobs", headers=headers)
        assert_problem(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert not cloud.calls.of("api")

    def test_a_401_does_not_tell_why(self, cloud: Cloud) -> None:
        """Unknown, wrong and revoked keys cannot be told apart."""
        tokens = [f"Bearer {UNKNOWN}", with_wrong_secret(cloud), revoked(cloud)]
        answers = [cloud.request("GET", "/jobs", headers={"Authorization": token}) for token in tokens]
        assert len({answer.body for answer in answers}) == 1

    def test_the_scheme_is_read_as_http_reads_it(self, cloud: Cloud) -> None:
        """`bearer` in any case, and more than one space, are the same scheme."""
        headers = {"Authorization": f"bEARER   {make_key(cloud, 'ana')}"}
        assert cloud.request("GET", "/jobs", headers=headers).status == 200

    def test_one_look_up_serves_the_whole_stage(self, service: Service) -> None:
        """The gateway keeps the authorizer's answer, and it allows every function and method."""
        job_id = service.submit()
        answers = [
            service.call("GET", "/jobs"),
            service.call("GET", f"/jobs/{job_id}/status"),
            service.call("POST", "/search", json={"query": "q"}),
            service.call("POST", f"/jobs/{job_id}/cancel"),
        ]
        assert [answer.status for answer in answers] == [200, 200, 200, 200]
        assert [call.action for call in service.cloud.calls.of("authorizer")] == ["dynamodb:GetItem"]

    def test_a_revoked_key_dies_with_the_cache(self, service: Service) -> None:
        """What the gateway remembers of a key is gone after five minutes."""
        table = service.cloud.table("Keys")
        assert service.call("GET", "/jobs").status == 200
        KeyStore(table.meta.client, table.name).revoke(service.authorization["Authorization"].split("_")[1])
        assert service.call("GET", "/jobs").status == 200
        service.cloud.clock.advance(301)
        assert service.call("GET", "/jobs").status == 401

    def test_a_key_store_that_is_down_is_our_fault(self, service: Service) -> None:
        """Without its table the authorizer can neither allow nor refuse: a 500, not a 401, and not remembered."""
        service.cloud.fail("dynamodb", "GetItem", "ThrottlingException", function="authorizer")
        assert_problem(service.call("GET", "/jobs"), 500, "internal")
        assert service.call("GET", "/jobs").status == 200


SCOPED = {
    ("GET", "/jobs"): "jobs:read",
    ("GET", "/jobs/{job_id}"): "jobs:read",
    ("GET", "/jobs/{job_id}/status"): "jobs:read",
    ("GET", "/jobs/{job_id}/events"): "jobs:read",
    ("POST", "/jobs"): "jobs:write",
    ("POST", "/jobs/{job_id}/cancel"): "jobs:write",
    ("POST", "/jobs/{job_id}/retry"): "jobs:write",
    ("DELETE", "/jobs/{job_id}"): "jobs:write",
    ("DELETE", "/jobs/{job_id}/links"): "jobs:write",
    ("POST", "/live/tickets"): "jobs:read",
    ("POST", "/uploads"): "jobs:write",
    ("POST", "/uploads/{upload_id}/complete"): "jobs:write",
    ("DELETE", "/uploads/{upload_id}"): "jobs:write",
    ("GET", "/documents"): "jobs:read",
    ("GET", "/documents/{document_id}"): "jobs:read",
    ("DELETE", "/documents/{document_id}"): "jobs:write",
    ("POST", "/search"): "search",
    ("POST", "/webhooks"): "webhooks:write",
    ("GET", "/webhooks"): "webhooks:read",
    ("GET", "/webhooks/events"): "webhooks:read",
    ("GET", "/webhooks/{webhook_id}"): "webhooks:read",
    ("PATCH", "/webhooks/{webhook_id}"): "webhooks:write",
    ("DELETE", "/webhooks/{webhook_id}"): "webhooks:write",
    ("POST", "/webhooks/{webhook_id}/rotate-secret"): "webhooks:write",
    ("GET", "/webhooks/{webhook_id}/public-key"): "webhooks:read",
    ("POST", "/webhooks/{webhook_id}/test"): "webhooks:write",
    ("POST", "/webhooks/{webhook_id}/recover"): "webhooks:write",
    ("POST", "/webhooks/{webhook_id}/replay"): "webhooks:write",
    ("GET", "/webhooks/{webhook_id}/deliveries"): "webhooks:read",
    ("GET", "/deliveries/{delivery_id}"): "webhooks:read",
    ("POST", "/deliveries/{delivery_id}/redeliver"): "webhooks:write",
}
LINKED = {("GET", "/follow/{token}/status"), ("GET", "/follow/{token}/events")}  # the token is the key
BODIES = {
    "/webhooks": {"url": "https://hooks.example.com/", "events": ["document.failed"]},
    "/webhooks/{webhook_id}": {"description": "taken"},
    "/webhooks/{webhook_id}/recover": {"since": "2026-11-30T09:00:00Z"},
    "/webhooks/{webhook_id}/replay": {"since": "2026-11-30T09:00:00Z"},
    "/jobs": {"kind": "document", "input": {"text": "t"}},
    "/uploads": {"filename": "f", "size": 1},
    "/uploads/{upload_id}/complete": {"parts": [{"number": 1, "etag": "e"}]},
    "/search": {"query": "q"},
}


NOWHERE = {
    "job_id": "job_01JDX000000000000000000000",
    "document_id": "none",
    "upload_id": "none",
    "webhook_id": "wh_01JDX000000000000000000000",
    "delivery_id": "dlv_01JDX000000000000000000000_01JDX000000000000000000000",
}


def everything(service: Service) -> dict[str, str]:
    """One of each that a path can name: a document, its job, an upload, an endpoint, its delivery of the end."""
    hook = {"url": "https://hooks.example.com/", "events": ["document.indexed"]}
    webhook_id = service.call("POST", "/webhooks", json=hook).json()["webhook_id"]
    job_id = service.submit("mine", document_id="d")
    service.cloud.settle(within=60)
    (delivery,) = service.call("GET", f"/webhooks/{webhook_id}/deliveries").json()["deliveries"]
    upload_id = service.call("POST", "/uploads", json=BODIES["/uploads"] | {"parts": True}).json()["upload_id"]
    names = {"job_id": job_id, "document_id": "d", "webhook_id": webhook_id, "upload_id": upload_id}
    return names | {"delivery_id": delivery["delivery_id"]}


def rows(cloud: Cloud) -> list[Any]:
    return [cloud.table(name).scan()["Items"] for name in ("Jobs", "Deliveries")]


def routes(cloud: Cloud) -> dict[tuple[str, str], dict[str, Any]]:
    """Every route of the published description."""
    paths = cloud.request("GET", "/openapi.json").json()["paths"]
    return {
        (method.upper(), path): operation
        for path, operations in paths.items()
        for method, operation in operations.items()
        if method in METHODS
    }


class TestScopes:
    def test_every_route_has_a_scope(self, cloud: Cloud) -> None:
        """A route that is added must say here which scope it needs, or that a link's token opens it."""
        assert set(routes(cloud)) == set(SCOPED) | LINKED

    def test_a_key_without_the_scope_is_refused_by_name(self, service: Service) -> None:
        """All other scopes together do not replace the one that a route needs: 403, and nothing happens."""
        names = everything(service)
        keys = {scope: make_key(service.cloud, "ana", scopes=tuple(set(SCOPES) - {scope})) for scope in SCOPES}
        before = rows(service.cloud)
        for (method, path), scope in SCOPED.items():
            target = path.format(**names)
            headers = {"Authorization": f"Bearer {keys[scope]}"}
            answer = service.cloud.request(method, target, json=BODIES.get(path), headers=headers)
            assert scope in assert_problem(answer, 403, "forbidden")["detail"]
        assert rows(service.cloud) == before


class TestOwners:
    def test_what_is_anothers_does_not_exist(self, service: Service) -> None:
        """Every route that names something of an owner's answers a foreign owner as if there were none."""
        cloud, stranger = service.cloud, Service(service.cloud, "bob")
        names, ended = everything(service), service.submit("gone")
        service.cancel(ended)
        cloud.settle(within=60)
        before = rows(cloud)
        for method, path in set(routes(cloud)) - LINKED:
            if "{" not in path:
                continue
            for job_id in (names["job_id"], ended):
                target = path.format(**names | {"job_id": job_id})
                problem = assert_problem(stranger.call(method, target, json=BODIES.get(path)), 404, "not_found")
                assert problem == stranger.call(method, path.format(**NOWHERE), json=BODIES.get(path)).json()
        assert rows(cloud) == before

    def test_lists_show_ones_own(self, service: Service) -> None:
        """Jobs, documents and search of a stranger are empty, also when it names what it wants."""
        stranger = Service(service.cloud, "bob")
        service.submit("mine", document_id="d")
        service.cloud.settle(within=60)
        assert stranger.call("GET", "/jobs").json() == {"jobs": [], "cursor": None}
        assert stranger.call("GET", "/documents").json() == {"documents": []}
        assert stranger.search("mine", filter={"document_ids": ["d"]}) == []
        assert [hit["text"] for hit in service.search("mine")] == ["mine"]

    def test_a_foreign_cursor_opens_nothing(self, service: Service) -> None:
        """A page that starts at somebody else's job holds one's own jobs only."""
        stranger = Service(service.cloud, "bob")
        own = stranger.submit()
        foreign = service.submit()
        page = stranger.call("GET", f"/jobs?cursor={foreign}").json()
        assert [job["job_id"] for job in page["jobs"]] == [own]

    def test_a_foreign_upload_cannot_be_submitted(self, service: Service) -> None:
        """The key of another owner's upload is refused like any other text."""
        key = service.upload(b"secret", content_type="text/plain")
        body = {"kind": "document", "input": {"s3_key": key}}
        answer = Service(service.cloud, "bob").call("POST", "/jobs", json=body)
        assert assert_problem(answer, 422, "invalid_request")["field"] == "input.s3_key"

    def test_an_idempotency_key_is_ones_own(self, service: Service) -> None:
        """Two owners may use the same key for different jobs."""
        stranger = Service(service.cloud, "bob")
        assert service.submit("a", key="k") != stranger.submit("b", key="k")


class TestOpenPaths:
    @pytest.mark.parametrize("path", OPEN)
    def test_they_need_no_key(self, cloud: Cloud, path: str) -> None:
        """Health, the description and its page answer everybody, and ask AWS nothing."""
        answer = cloud.request("GET", path, headers={"Accept-Encoding": "gzip"})
        assert (answer.status, answer.headers["Content-Type"]) == (200, OPEN[path])
        assert not cloud.calls.log

    def test_the_description_says_how_to_authenticate(self, cloud: Cloud) -> None:
        """Every operation needs a bearer key, but a link's, and names its problem documents."""
        description = cloud.request("GET", "/openapi.json").json()
        assert description["openapi"].startswith("3.")
        assert description["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
        assert description["security"] == [{"key": []}]
        for call, operation in routes(cloud).items():
            assert ("401" in operation["responses"]) == (operation.get("security") != []) == (call not in LINKED)
            assert {"403", "422"} <= set(operation["responses"])

    def test_the_page_asks_no_other_host(self, cloud: Cloud) -> None:
        """Swagger UI comes whole: no script, style or image is loaded from elsewhere."""
        page = cloud.request("GET", "/docs", headers={"Accept-Encoding": "gzip"}).text
        assert "Recado" in page
        assert "<script src" not in page
        assert 'rel="stylesheet" href="http' not in page

    @pytest.mark.parametrize("path", ["/nothing", "/jobs/a/b/c", "/health/x", "/docs/x", "/"])
    def test_an_unknown_path_is_a_404(self, service: Service, path: str) -> None:
        """Whether the gateway or a function finds nothing there, the answer is the same problem."""
        problem = assert_problem(service.call("GET", path), 404, "not_found")
        assert "/openapi.json" in problem["detail"]

    def test_pages_of_other_origins_are_not_invited(self, service: Service) -> None:
        """Without `cors_origins` no answer has a CORS header, and a preflight is no call of ours."""
        origin = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        answers = [
            service.call("GET", "/jobs", headers=origin),
            service.cloud.request("GET", "/jobs", headers=origin),
        ]
        answers.append(service.cloud.request("OPTIONS", "/jobs", headers=origin))
        assert [answer.status for answer in answers] == [200, 401, 401]
        assert not [
            name for answer in answers for name in answer.headers if name.lower().startswith("access-control")
        ]

    @pytest.mark.parametrize("origin", ["https://app.example", "https://b.example"])
    def test_pages_of_configured_origins_are(self, service: Service, knob: Any, origin: str) -> None:
        """With `cors_origins` a page of one of them may read the answer, errors included; others may not."""
        for function in ("Functions/Api", "Functions/LongPoll"):
            knob(function, CORS_ORIGINS="https://app.example,https://b.example")
        job_id = service.submit()
        targets = [("/jobs", 200), (f"/jobs/{job_id}/status", 200), ("/jobs/job_x", 404)]
        for target, status in targets:
            answer = service.call("GET", target, headers={"Origin": origin})
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, origin)
            assert "Location" in answer.headers["Access-Control-Expose-Headers"]
            other = service.call("GET", target, headers={"Origin": "https://evil.example"})
            assert "Access-Control-Allow-Origin" not in other.headers
