"""Submitting, listing, uploading and removing, through the deployed gateway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import chain, count
from typing import Any, ClassVar
from urllib.parse import quote, urljoin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulated_cloud.calls import Call, transaction_canceled
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.rest_api import Response
from tests.support.problems import assert_problem
from tests.support.service import Service

Knob = Callable[..., None]
HOOK = "https://hooks.example.com/in"


def body(text: str = "A short text.", **fields: Any) -> dict[str, Any]:
    return {"kind": "document", "input": {"text": text}, **fields}


def post(service: Service, body: dict[str, Any], key: str | None = None) -> Response:
    return service.call("POST", "/jobs", json=body, headers={"Idempotency-Key": key} if key else {})


def transactions(cloud: Cloud) -> list[Call]:
    return [call for call in cloud.calls.log if call.action == "dynamodb:TransactWriteItems"]


def stored(cloud: Cloud, entity: str) -> list[dict[str, Any]]:
    return [item for item in cloud.table("Jobs").scan()["Items"] if item.get("entity") == entity]


class TestSubmission:
    def test_it_is_one_transaction_of_exact_conditions(self, service: Service) -> None:
        """Job, first event, secret and idempotency key are written together, each only where there is none yet.

        With them the item that counts the open job is written.
        """
        job_id = post(service, body(webhook_url=HOOK), key="k").json()["job_id"]
        (call,) = transactions(service.cloud)
        puts = [operation["Put"] for operation in call.params["TransactItems"]]
        assert [put["Item"]["entity"] for put in puts] == ["job", "event", "endpoint", "open_job", "idempotency"]
        absent = "attribute_not_exists(pk)"
        expired = "attribute_not_exists(pk) OR expires_at <= :now"
        conditions = [put.get("ConditionExpression") for put in puts]
        assert conditions == [absent, absent, absent, None, expired]
        assert [(put["Item"]["pk"], put["Item"]["sk"]) for put in puts[:3]] == [
            (f"JOB#{job_id}", "META"),
            (f"JOB#{job_id}", "EVENT#000001"),
            ("OWNER#ana", "ENDPOINT#default"),
        ]
        assert puts[1]["Item"]["name"] == "document.uploaded"

    def test_a_job_without_key_or_webhook_is_three_items(self, service: Service) -> None:
        """Nothing is written that was not asked for, but what counts the open job."""
        service.submit()
        items = service.cloud.table("Jobs").scan()["Items"]
        assert sorted(item["entity"] for item in items) == ["event", "job", "open_job"]

    def test_the_write_comes_before_the_202(self, service: Service) -> None:
        """The transaction is the last thing done for a submission; after it every route knows the job."""
        job_id = service.submit(webhook_url=HOOK)
        assert service.cloud.calls.of("api")[-1].operation == "TransactWriteItems"
        answers = [service.call("GET", f"/jobs/{job_id}{part}").status for part in ("", "/status", "/events")]
        assert answers == [200, 200, 200]
        assert [job["job_id"] for job in service.call("GET", "/jobs").json()["jobs"]] == [job_id]

    def test_what_is_not_written_is_not_accepted(self, service: Service) -> None:
        """A table that refuses the transaction gives a 500 problem, and there is no job."""
        service.cloud.fail("dynamodb", "TransactWriteItems", "InternalServerError", function="api")
        assert_problem(post(service, body()), 500, "internal")
        assert stored(service.cloud, "job") == []

    def test_the_answer_says_where_to_look(self, service: Service) -> None:
        """202 has the queued job, a Location that resolves to it, and when to ask again."""
        answer = post(service, body(metadata={"a": "b"}))
        job = answer.json()
        assert (answer.status, job["status"], job["sequence"]) == (202, "queued", 1)
        submitted_to = job["links"]["self"].rsplit("/", 1)[0]
        assert urljoin(submitted_to, answer.headers["Location"]) == job["links"]["self"]
        assert answer.headers["Retry-After"] == "5"
        assert job == service.job(job["job_id"]) | {"webhook_secret": None}

    def test_a_document_is_named_after_its_job(self, service: Service) -> None:
        """`document_id` is the job's id where the caller gives none."""
        assert service.job(job_id := service.submit())["document_id"] == job_id
        assert service.job(service.submit(document_id="mío"))["document_id"] == "mío"

    def test_contention_is_waited_out(self, service: Service) -> None:
        """Transactions that conflict are tried again."""
        rule = service.cloud.fail("dynamodb", "TransactWriteItems", transaction_canceled(), times=3)
        service.submit(key="k", webhook_url=HOOK)
        assert rule.hits == 3
        assert len(stored(service.cloud, "job")) == 1

    def test_endless_contention_is_a_503(self, service: Service) -> None:
        """Who cannot write at all says when to try again, and has written nothing."""
        service.cloud.fail("dynamodb", "TransactWriteItems", transaction_canceled(), times=None)
        answer = post(service, body())
        assert_problem(answer, 503, "contended")
        assert answer.headers["Retry-After"] == "1"
        assert service.cloud.table("Jobs").scan()["Items"] == []


class TestIdempotency:
    def test_the_same_request_is_the_same_job(self, service: Service) -> None:
        """A replay answers 202 with the job as it is now, and says that it is one."""
        first = post(service, body(), key="k")
        service.cloud.settle(within=60)
        again = post(service, body(), key="k")
        assert (again.status, again.headers["Idempotent-Replayed"]) == (202, "true")
        assert "Idempotent-Replayed" not in first.headers
        assert (again.json()["job_id"], again.json()["status"]) == (first.json()["job_id"], "completed")
        assert again.headers["Location"] == first.headers["Location"]
        assert len(stored(service.cloud, "job")) == 1

    def test_json_is_compared_as_values(self, service: Service) -> None:
        """Order, white space and escapes do not make another request."""
        one = '{"kind": "document", "input": {"text": "é", "document_id": "d"}, "metadata": {"a": "1"}}'
        two = '{"metadata":{"a":"1"},"input":{"document_id":"d","text":"\\u00e9"},"kind":"document"}'
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        answers = [service.call("POST", "/jobs", body=text, headers=headers).json() for text in (one, two)]
        assert answers[0]["job_id"] == answers[1]["job_id"]

    @pytest.mark.parametrize("other", [body("Another."), body(metadata={"a": "b"}), body(webhook_url=HOOK)])
    def test_another_request_is_refused(self, service: Service, other: dict[str, Any]) -> None:
        """The key of one request cannot be used for a different one."""
        service.submit(key="k")
        assert assert_problem(post(service, other, key="k"), 422, "invalid_request")["field"] == "Idempotency-Key"
        assert len(stored(service.cloud, "job")) == 1

    @pytest.mark.parametrize("lost", ["InternalServerError", ConnectionResetError("answer lost")])
    def test_a_lost_answer_is_made_up_for(self, service: Service, lost: Any) -> None:
        """The write took effect but nobody heard: the client's retry finds that job and makes no second one."""
        service.cloud.fail("dynamodb", "TransactWriteItems", lost, function="api", after=True)
        assert_problem(post(service, body(), key="k"), 500, "internal")
        again = post(service, body(), key="k")
        assert (again.status, again.headers["Idempotent-Replayed"]) == (202, "true")
        (job,) = stored(service.cloud, "job")
        assert again.json()["job_id"] == job["job_id"]

    def test_a_function_that_died_is_made_up_for(self, service: Service) -> None:
        """Wherever the submission is killed, the client's retry leaves one job, which completes."""
        service.submit(key="k")
        calls = len(service.cloud.calls.of("api"))
        for k in range(calls + 1):
            service.cloud.reset()
            client = Service(service.cloud)
            service.cloud.kill("api", after=k)
            assert post(client, body(), key="k").status == 502
            job_id = client.submit(key="k")
            service.cloud.settle(within=60)
            client.assert_over(job_id, "completed")
            assert len(stored(service.cloud, "job")) == 1

    def test_two_at_once_are_one(self, service: Service) -> None:
        """Of two requests in one instant the loser of the transaction replays the winner's job, secret masked."""
        same = body(webhook_url=HOOK)
        winner: list[Response] = []
        service.cloud.on(
            "dynamodb", "TransactWriteItems", lambda call: winner.append(post(service, same, key="k"))
        )
        loser = post(service, same, key="k")
        assert [winner[0].status, loser.status] == [202, 202]
        assert loser.json()["job_id"] == winner[0].json()["job_id"]
        replayed = [answer.headers.get("Idempotent-Replayed") for answer in (winner[0], loser)]
        assert replayed == [None, "true"]
        assert loser.json()["webhook_secret"] == "whsec_…" != winner[0].json()["webhook_secret"]
        assert len(stored(service.cloud, "job")) == 1

    def test_a_key_may_be_used_again_after_a_day(self, service: Service) -> None:
        """Keys are kept for 24 hours to the second, whether or not the table has removed them."""
        first = service.submit(key="k")
        service.cloud.pause("start_job", "publisher")
        service.cloud.clock.advance(86_400 - 5)
        assert service.submit(key="k") == first
        service.cloud.clock.advance(6)
        assert service.submit("Another.", key="k") != first

    @pytest.mark.parametrize(("key", "status"), [("k" * 255, 202), ("k" * 256, 422), ("", 422)])
    def test_a_key_has_up_to_255_characters(self, service: Service, key: str, status: int) -> None:
        """Longer keys and empty ones are refused, since what was meant cannot be known."""
        answer = service.call("POST", "/jobs", json=body(), headers={"Idempotency-Key": key})
        assert answer.status == status
        if status == 422:
            assert assert_problem(answer, 422, "invalid_request")["field"] == "Idempotency-Key"

    def test_a_retry_of_a_job_is_idempotent_too(self, service: Service) -> None:
        """Running a canceled job again twice with one key makes one new job, which names the old one."""
        job_id = service.submit()
        service.cancel(job_id)
        headers = {"Idempotency-Key": "again"}
        answers = [service.call("POST", f"/jobs/{job_id}/retry", headers=headers) for _ in range(2)]
        assert [answer.status for answer in answers] == [202, 202]
        one, two = (answer.json() for answer in answers)
        assert one["job_id"] == two["job_id"] != job_id
        assert one["retry_of"] == job_id
        request = f"{service.job(job_id)['links']['self']}/retry"
        assert urljoin(request, answers[0].headers["Location"]) == one["links"]["self"]


class TestWebhookSecret:
    def test_it_is_shown_once(self, service: Service) -> None:
        """The owner's first job with a webhook carries the new secret; replays, later jobs and reads a mask."""
        first = post(service, body(webhook_url=HOOK), key="k").json()
        assert len(first["webhook_secret"]) == len("whsec_") + 44
        replay = post(service, body(webhook_url=HOOK), key="k").json()
        later = post(service, body("Other.", webhook_url=HOOK)).json()
        assert [replay["webhook_secret"], later["webhook_secret"]] == ["whsec_…", "whsec_…"]
        assert "webhook_secret" not in service.job(first["job_id"])

    def test_it_is_stored_encrypted(self, service: Service) -> None:
        """The table has the secret only as KMS has encrypted it for this owner and endpoint."""
        secret = post(service, body(webhook_url=HOOK)).json()["webhook_secret"]
        (endpoint,) = stored(service.cloud, "endpoint")
        (key,) = endpoint["keys"]
        assert secret.encode() not in bytes(key["encrypted"])
        assert secret.removeprefix("whsec_") not in repr(service.cloud.table("Jobs").scan()["Items"])
        (call,) = [call for call in service.cloud.calls.log if call.operation == "Encrypt"]
        assert call.params["EncryptionContext"] == {"owner": "ana", "endpoint": "default"}

    def test_two_first_jobs_at_once_share_one(self, service: Service) -> None:
        """Of two first jobs the one that comes second takes the other's secret and shows a mask."""
        winner: list[Response] = []
        service.cloud.on(
            "dynamodb", "TransactWriteItems", lambda call: winner.append(post(service, body(webhook_url=HOOK)))
        )
        loser = post(service, body("Other.", webhook_url=HOOK))
        assert (loser.status, loser.json()["webhook_secret"]) == (202, "whsec_…")
        assert winner[0].json()["webhook_secret"] != "whsec_…"
        assert len(stored(service.cloud, "endpoint")) == 1
        assert len(stored(service.cloud, "job")) == 2


def deep(levels: int) -> str:
    return '{"kind": ' + "[" * levels + "]" * levels + "}"


INVALID: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "kind"),
    "a list": ([], "body"),
    "no JSON": ("{", "body"),
    "too deep": (deep(100_000), "body"),
    "an unknown kind": (body() | {"kind": "poem"}, "kind"),
    "a misspelt field": (body() | {"webhookurl": HOOK}, "webhookurl"),
    "no source": ({"kind": "document", "input": {}}, "input"),
    "two sources": ({"kind": "document", "input": {"text": "t", "s3_key": "k"}}, "input"),
    "half a character": ('{"kind": "document", "input": {"text": "\\ud83d"}}', "input.text"),
    "nothing uploaded": ({"kind": "document", "input": {"s3_key": "uploads/ana/upl_0/f"}}, "input.s3_key"),
    "a control character": (body() | {"metadata": {"a\n": "b"}}, "metadata"),
    "a number": (body() | {"metadata": {"a": 1}}, "metadata.a"),
    "plain http": (body(webhook_url="http://hooks.example.com/"), "webhook_url"),
    "a private address": (body(webhook_url="https://10.0.0.1/"), "webhook_url"),
    "the metadata service": (body(webhook_url="https://169.254.169.254/latest"), "webhook_url"),
    "a private name": (body(webhook_url="https://localhost/"), "webhook_url"),
    "a user name": (body(webhook_url="https://u:p@hooks.example.com/"), "webhook_url"),
    "an unknown event": (body(webhook_url=HOOK, webhook_events=["document.lost"]), "webhook_events"),
    "no events": (body(webhook_url=HOOK, webhook_events=[]), "webhook_events"),
    "events for nobody": (body(webhook_events=["document.indexed"]), "body"),
}


class TestValidation:
    @pytest.mark.parametrize("case", INVALID)
    def test_what_is_wrong_is_named(self, service: Service, case: str) -> None:
        """422 names the field, and nothing is written anywhere."""
        given, field = INVALID[case]
        raw = given if isinstance(given, str) else json.dumps(given)
        answer = service.call("POST", "/jobs", body=raw, headers={"Content-Type": "application/json"})
        assert assert_problem(answer, 422, "invalid_request")["field"].startswith(field)
        assert service.cloud.table("Jobs").scan()["Items"] == []
        assert service.keys() == []

    def test_a_refusal_does_not_repeat_what_was_sent(self, service: Service) -> None:
        """Values may be somebody's text or token, so problems name fields only."""
        wrong = body("x" * 10, metadata={"a": ["hush-hush"]}, webhook_url="https://localhost/?token=hush-hush")
        answers = [post(service, wrong), post(service, body(webhook_url="https://localhost/?token=hush-hush"))]
        assert [answer.status for answer in answers] == [422, 422]
        assert not [answer for answer in answers if "hush" in answer.text]

    def test_the_limit_of_inline_text_is_in_bytes(self, service: Service) -> None:
        """256 KiB of UTF-8 are taken, one byte more is a 413 that says what to do instead."""
        service.cloud.pause("publisher")
        assert post(service, body("é" * 131_072)).status == 202
        problem = assert_problem(post(service, body("é" * 131_072 + "e")), 413, "payload_too_large")
        assert problem["field"] == "input.text"
        assert "/uploads" in problem["detail"]

    def test_a_body_that_no_gateway_takes_is_a_problem_too(self, service: Service) -> None:
        """Beyond 10 MB API Gateway answers, in our form."""
        answer = service.call("POST", "/jobs", body=b" " * (10 * 1024 * 1024 + 1))
        assert "/uploads" in assert_problem(answer, 413, "payload_too_large")["detail"]

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_no_json_breaks_it(self, service: Service, data: st.DataObject) -> None:
        """Whatever JSON comes, the answer is an acceptance or a problem of the caller's."""
        leaves = (
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("document")
        )
        names = st.sampled_from(["kind", "input", "text", "s3_key", "metadata", "query", "filter", "size"])
        nested = st.recursive(
            leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=4)
        )
        path = data.draw(st.sampled_from(["/jobs", "/uploads", "/search", "/jobs/a/cancel"]))
        answer = service.call("POST", path, json=data.draw(st.dictionaries(names, nested, max_size=4) | nested))
        if answer.status not in (200, 201, 202):
            assert answer.status in (404, 413, 422), answer.text
            assert answer.headers["Content-Type"] == "application/problem+json"


class TestList:
    def pages(self, service: Service, query: str, cursor: str | None = None) -> list[list[str]]:
        found = []
        while True:
            page = service.call("GET", f"/jobs?{query}" + (f"&cursor={cursor}" if cursor else "")).json()
            found.append([job["job_id"] for job in page["jobs"]])
            if not (cursor := page["cursor"]):
                return found

    def test_pages_are_newest_first_without_gaps(self, service: Service) -> None:
        """Every job is on exactly one page, also if new ones come in meanwhile."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(i)) for i in range(25)]
        answer = service.call("GET", "/jobs?limit=10").json()
        service.submit("late")
        rest = self.pages(service, "limit=10", answer["cursor"])
        assert [[job["job_id"] for job in answer["jobs"]], *rest] == [
            jobs[:14:-1], jobs[14:4:-1], jobs[4::-1]
        ]  # fmt: skip

    def test_filters_pick_over_all_pages(self, service: Service) -> None:
        """A page of a filtered list is filled from as many jobs as it takes."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(i)) for i in range(12)]
        canceled = jobs[::5]
        for job_id in canceled:
            service.cancel(job_id)
        assert list(chain(*self.pages(service, "status=canceled&limit=2"))) == canceled[::-1]
        assert list(chain(*self.pages(service, "status=queued&kind=document"))) == [
            job for job in reversed(jobs) if job not in canceled
        ]
        assert self.pages(service, "status=running") == [[]]

    def test_a_list_shows_how_each_job_stands(self, service: Service) -> None:
        """An entry has what one needs to choose, and links to the rest."""
        job_id = service.submit("", document_id="d")
        service.cloud.settle(within=60)
        (entry,) = service.call("GET", "/jobs").json()["jobs"]
        whole = service.job(job_id)
        assert entry == {name: whole[name] for name in entry}
        assert (entry["status"], entry["error"]["code"]) == ("failed", "empty")

    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=101", "limit=x", "cursor=x", "status=lost", "kind=poem", "cursor="]
    )
    def test_a_wrong_question_is_named(self, service: Service, query: str) -> None:
        """422 names the parameter."""
        problem = assert_problem(service.call("GET", f"/jobs?{query}"), 422, "invalid_request")
        assert problem["field"].endswith(query.partition("=")[0])

    def test_jobs_are_forgotten_when_their_time_is_over(self, service: Service) -> None:
        """After 90 days a job is gone from list and path, whether or not the table has removed it."""
        service.cloud.pause("publisher")
        job_id = service.submit()
        service.cloud.clock.advance(90 * 86_400)
        assert service.call("GET", "/jobs").json()["jobs"] == []
        assert service.call("GET", f"/jobs/{job_id}").status == 404
        assert service.call("GET", f"/jobs/{job_id}/events").status == 404


class TestUploads:
    ASKED: ClassVar[dict[str, Any]] = {
        "filename": "it's mine; rm.pdf",
        "content_type": "application/pdf",
        "size": 5,
    }

    def place(self, service: Service, **other: Any) -> dict[str, Any]:
        answer = service.call("POST", "/uploads", json=self.ASKED | other)
        assert answer.status == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def put(self, service: Service, place: dict[str, Any], data: bytes, **headers: str) -> int:
        sent = place["headers"] | {name.replace("_", "-"): value for name, value in headers.items()}
        return service.cloud.fetch(place["method"], place["url"], body=data, headers=sent).status_code

    def test_exactly_what_was_announced_can_be_put(self, service: Service) -> None:
        """The URL takes the size and type that were asked for, under the owner's own prefix, and nothing else."""
        place = self.place(service)
        assert place["s3_key"].startswith("uploads/ana/upl_")
        assert self.put(service, place, b"123456") == 403
        assert self.put(service, place, b"12345", Content_Type="text/html") == 403
        assert self.put(service, place, b"12345") == 200
        assert service.keys() == [place["s3_key"]]

    def test_what_is_there_is_not_overwritten(self, service: Service) -> None:
        """The upload is bound to be the first: a second one meets a condition that fails."""
        place = self.place(service)
        assert place["headers"]["If-None-Match"] == "*"
        assert self.put(service, place, b"12345", If_None_Match="x") == 403

    def test_a_url_dies_after_an_hour(self, service: Service) -> None:
        """The answer says when, and after that the URL is refused."""
        place = self.place(service)
        assert place["expires_at"].startswith("2026-11-30T10:00:")
        service.cloud.clock.advance(3601)
        assert self.put(service, place, b"12345") == 403

    def test_the_curl_line_can_be_pasted(self, service: Service) -> None:
        """A shell reads it as the file, the headers and the URL, whatever the file is called."""
        place = self.place(service)
        words = shlex.split(place["curl"])
        assert words[:4] == ["curl", "-fsS", "-T", self.ASKED["filename"]]
        assert words[-1] == place["url"]
        assert {f"{name}: {value}" for name, value in place["headers"].items()} <= set(words)

    def test_what_is_too_large_is_refused_before_it_is_sent(self, service: Service) -> None:
        """One byte more than 50 MiB is a 413 that names the field."""
        assert self.place(service, size=52_428_800)
        answer = service.call("POST", "/uploads", json=self.ASKED | {"size": 52_428_801})
        assert assert_problem(answer, 413, "payload_too_large")["field"] == "size"

    @pytest.mark.parametrize(
        "wrong",
        [{"size": 0}, {"size": "x"}, {"filename": ""}, {"filename": "a\nb"}, {"content_type": "a\r\nb: c"}],
    )
    def test_a_place_must_be_described(self, service: Service, wrong: dict[str, Any]) -> None:
        """422 names what is wrong with the description."""
        answer = service.call("POST", "/uploads", json=self.ASKED | wrong)
        assert [assert_problem(answer, 422, "invalid_request")["field"]] == list(wrong)


class TestDocuments:
    def test_search_is_narrowed_by_document_and_metadata(self, service: Service) -> None:
        """A filter admits these documents with all of this metadata; `top_k` cuts the rest."""
        for name, metadata in {"a": {"lang": "es"}, "b": {"lang": "es", "year": "1"}, "c": {}}.items():
            service.submit(f"text of {name}", document_id=name, metadata=metadata)
        service.cloud.settle(within=60)

        def found(**options: Any) -> set[str]:
            return {hit["document_id"] for hit in service.search("text", **options)}

        assert found() == {"a", "b", "c"}
        assert len(found(top_k=2)) == 2
        assert found(filter={"document_ids": ["a", "c", "z"]}) == {"a", "c"}
        assert found(filter={"metadata": {"lang": "es"}}) == {"a", "b"}
        assert found(filter={"metadata": {"lang": "es", "year": "1"}}) == {"b"}
        assert found(filter={"document_ids": ["a"], "metadata": {"year": "1"}}) == set()

    @pytest.mark.parametrize(
        "wrong", [{"query": " "}, {"query": "q", "top_k": 0}, {"query": "q", "top_k": 101}, {"query": "q", "k": 1}]
    )
    def test_a_question_must_be_one(self, service: Service, wrong: dict[str, Any]) -> None:
        """422 names what is wrong with a search."""
        problem = assert_problem(service.call("POST", "/search", json=wrong), 422, "invalid_request")
        assert problem["field"] == list(wrong)[-1]

    @pytest.mark.parametrize("name", ["a/b", "ñandú 1", "100%", "%41", "a+b", "..", "?"])
    def test_a_document_is_reached_by_its_name(self, service: Service, name: str) -> None:
        """Any name that a job may give can be read and deleted by path, URL-encoded."""
        service.submit(document_id=name)
        service.cloud.settle(within=60)
        target = f"/documents/{quote(name, safe='')}"
        assert service.call("GET", target).json()["document_id"] == name
        assert service.call("DELETE", target).status == 204
        assert service.call("GET", target).status == 404
        assert service.documents() == {}

    def test_a_deletion_that_broke_off_can_be_repeated(self, service: Service) -> None:
        """If it fails after the document went out of sight, the same request again removes its vectors."""
        service.submit(document_id="d")
        service.cloud.settle(within=60)
        service.cloud.fail("sqs", "SendMessage", "ServiceUnavailable", function="api")
        assert service.call("DELETE", "/documents/d").status == 500
        assert service.documents() == {}
        assert service.call("DELETE", "/documents/d").status == 204
        service.cloud.settle(within=60)
        assert not service.vectors()


def requests(service: Service) -> dict[str, Callable[[], Response]]:
    """One request of each kind, by function and name."""
    job_id, ended = service.submit("first", document_id="d"), service.submit("second")
    service.cancel(ended)
    service.cloud.settle(within=60)
    return {
        "api submit": lambda: post(service, body(webhook_url=HOOK), key="k"),
        "api get": lambda: service.call("GET", f"/jobs/{job_id}"),
        "long_poll events": lambda: service.call("GET", f"/jobs/{job_id}/events"),
        "api list": lambda: service.call("GET", "/jobs"),
        "api cancel": lambda: service.call("POST", f"/jobs/{ended}/cancel"),
        "api retry": lambda: service.call("POST", f"/jobs/{ended}/retry"),
        "api document": lambda: service.call("GET", "/documents/d"),
        "api delete": lambda: service.call("DELETE", "/documents/d"),
        "long_poll status": lambda: service.call("GET", f"/jobs/{job_id}/status"),
        "search find": lambda: service.call("POST", "/search", json={"query": "first"}),
    }


FAILURES: dict[str, Any] = {
    "a bug": RuntimeError("hush-hush"),
    "a refusal": "AccessDeniedException",
    "no connection": ConnectionResetError("hush-hush"),
}


class TestFailures:
    @pytest.mark.parametrize("name", ["a bug", "a refusal", "no connection"])
    def test_no_failure_shows_its_inside(self, service: Service, name: str) -> None:
        """Whichever AWS call fails, the answer is a 5xx problem without trace, message or name of what failed."""
        for title, request in requests(service).items():
            function = title.split()[0]
            before = len(service.cloud.calls.of(function))
            for n in count(1):
                options = {"function": function, "when": lambda call, n=n: call.index == n}
                with service.cloud.fail("*", "*", FAILURES[name], **options) as rule:
                    answer = request()
                if not rule.hits:
                    assert answer.status < 300, answer.text
                    break
                assert answer.status >= 500, (title, n, answer.text)
                assert_problem(answer, answer.status, "internal")
                assert not any(
                    word in answer.text for word in ("hush", "Trace", "Error", "Exception", "File", "AWS")
                )
            assert len(service.cloud.calls.of(function)) > before

    def test_a_function_that_dies_is_a_problem_too(self, service: Service) -> None:
        """A killed or timed-out function has the gateway answer in our form."""
        job_id = service.submit()
        service.cloud.kill("api", after=1)
        assert_problem(service.call("GET", f"/jobs/{job_id}"), 502, "internal")
        service.cloud.on("dynamodb", "Query", lambda call: service.cloud.clock.advance(29.5), function="long_poll")
        answer = service.call("GET", f"/jobs/{job_id}/status")
        assert_problem(answer, 504, "timeout")
