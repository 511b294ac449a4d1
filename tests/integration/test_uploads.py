"""Files in parts, through the deployed gateway, the signed URLs and the store's own rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rest.api.parts import PART_BYTES, Ticket
from tests.simulated_cloud.rest_api import Response
from tests.support import pdfs
from tests.support.problems import assert_problem
from tests.support.service import Service

Knob = Callable[..., None]
REST = 1000


def large_pdf(text: str) -> bytes:
    """A page with this text in a file of two parts: most of it is a stream that nothing refers to."""
    noise = random.Random(1).randbytes(PART_BYTES)
    return pdfs.write(pdfs.document(pdfs.show(text)) | {9: pdfs.stream(noise)})


def begin(service: Service, size: int = PART_BYTES + REST, **other: Any) -> dict[str, Any]:
    asked = {"filename": "table.pdf", "content_type": "application/pdf", "size": size, "parts": True}
    answer = service.call("POST", "/uploads", json=asked | other)
    assert answer.status == 201, answer.text
    place: dict[str, Any] = answer.json()
    return place


def put(service: Service, part: dict[str, Any], data: bytes) -> dict[str, Any]:
    """What `complete` wants to know of the part."""
    answer = service.cloud.fetch("PUT", part["url"], body=data)
    assert answer.status_code == 200, answer.text
    return {"number": part["number"], "etag": answer.headers["ETag"]}


def put_all(service: Service, place: dict[str, Any], data: bytes | None = None) -> list[dict[str, Any]]:
    """All parts, the last one first; zeros where no data is given."""
    data = bytes(sum(part["size"] for part in place["parts"])) if data is None else data
    starts = [(part["number"] - 1) * place["part_size"] for part in place["parts"]]
    cut = [data[start : start + part["size"]] for start, part in zip(starts, place["parts"], strict=True)]
    return [put(service, part, some) for part, some in reversed([*zip(place["parts"], cut, strict=True)])]


def complete(service: Service, place: dict[str, Any], parts: Sequence[dict[str, Any]]) -> Response:
    return service.call("POST", f"/uploads/{place['upload_id']}/complete", json={"parts": parts})


def abort(service: Service, place: dict[str, Any]) -> int:
    return service.call("DELETE", f"/uploads/{place['upload_id']}").status


def under_way(service: Service) -> int:
    """Uploads in parts that the store knows of."""
    s3, bucket = service.cloud.client("s3"), service.cloud.bucket("Data")
    return len(s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def stored(service: Service, key: str) -> bytes:
    data: bytes = (
        service.cloud.client("s3").get_object(Bucket=service.cloud.bucket("Data"), Key=key)["Body"].read()
    )
    return data


class TestCompleting:
    def test_the_parts_become_the_document(self, service: Service) -> None:
        """Sent in any order, joined in theirs; the job pins the whole file's ETag, and what is in it is found."""
        data = large_pdf("Contrato")
        place = begin(service, len(data))
        answer = complete(service, place, put_all(service, place, data))
        assert answer.status == 200
        done = answer.json()
        assert (done["s3_key"], done["size"]) == (place["s3_key"], len(data))
        assert stored(service, place["s3_key"]) == data
        assert under_way(service) == 0
        job_id = service.submit(s3_key=place["s3_key"], document_id="d")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert done["etag"].endswith('-2"')
        pinned = [c.params for c in service.cloud.calls.of("validate_document") if c.operation == "GetObject"]
        assert [params["IfMatch"] for params in pinned] == [done["etag"]]
        assert service.search("Contrato")[0]["document_id"] == "d"

    def test_twice_is_once(self, service: Service) -> None:
        """The same answer, also when the first one was lost; nothing is joined a second time."""
        place = begin(service)
        parts = put_all(service, place)
        with service.cloud.fail("s3", "CompleteMultipartUpload", "InternalError", after=True):
            assert_problem(complete(service, place, parts), 500, "internal")
        first, second = complete(service, place, parts), complete(service, place, parts)
        assert (first.status, first.json()) == (200, second.json())
        assert service.keys() == [place["s3_key"]]

    @pytest.mark.parametrize("refusal", ["PreconditionFailed", "NoSuchUpload"])
    def test_whatever_the_store_says_of_a_second_time(self, service: Service, refusal: str) -> None:
        """It may know that the key is taken, or not know the upload any more: the file is there."""
        place = begin(service)
        parts = put_all(service, place)
        first = complete(service, place, parts)
        with service.cloud.fail("s3", "CompleteMultipartUpload", refusal):
            assert complete(service, place, parts).json() == first.json()

    def test_two_at_once(self, service: Service) -> None:
        """The one that the store turns away is asked to come back, and finds the file then."""
        place = begin(service)
        parts = put_all(service, place)
        with service.cloud.fail("s3", "CompleteMultipartUpload", "ConditionalRequestConflict"):
            answer = complete(service, place, parts)
        assert_problem(answer, 503, "contended")
        assert answer.headers["Retry-After"] == "1"
        assert complete(service, place, parts).status == 200

    def test_a_key_is_filled_once(self, service: Service) -> None:
        """The store is told to join only where there is nothing yet."""
        place = begin(service)
        complete(service, place, put_all(service, place))
        (call,) = [c for c in service.cloud.calls.of("api") if c.operation == "CompleteMultipartUpload"]
        assert call.params["IfNoneMatch"] == "*"

    def test_what_is_gone_is_not_complete(self, service: Service) -> None:
        """A file that has expired since is not said to be there."""
        place = begin(service)
        parts = put_all(service, place)
        complete(service, place, parts)
        service.cloud.client("s3").delete_object(Bucket=service.cloud.bucket("Data"), Key=place["s3_key"])
        assert_problem(complete(service, place, parts), 404, "not_found")

    def test_before_it_there_is_nothing_to_submit(self, service: Service) -> None:
        """Parts are no file."""
        place = begin(service)
        put_all(service, place)
        job = {"kind": "document", "input": {"s3_key": place["s3_key"]}}
        problem = assert_problem(service.call("POST", "/jobs", json=job), 422, "invalid_request")
        assert problem["field"] == "input.s3_key"
        assert "complete" in problem["detail"]


class TestRefusals:
    def test_a_part_is_what_was_announced(self, service: Service) -> None:
        """No byte more or less, no other part, no other method, and no later than within the hour."""
        place = begin(service)
        part = place["parts"][1]
        other = part["url"].replace("partNumber=2", "partNumber=3")
        for size, url in ((REST + 1, part["url"]), (REST - 1, part["url"]), (REST, other)):
            assert service.cloud.fetch("PUT", url, body=bytes(size)).status_code == 403
        assert service.cloud.fetch("GET", part["url"]).status_code == 403
        assert put(service, part, bytes(REST))
        service.cloud.clock.advance(3601)
        assert service.cloud.fetch("PUT", part["url"], body=bytes(REST)).status_code == 403

    @pytest.mark.parametrize("change", ["left out", "named twice", "too many", "of another ETag"])
    def test_every_part_must_be_there(self, service: Service, change: str) -> None:
        """What is not exactly the parts that were announced is a 422, and no file; it can be made good."""
        place = begin(service)
        second, first = put_all(service, place)
        parts = {
            "left out": [first],
            "named twice": [first, second, second],
            "too many": [first, second, {"number": 3, "etag": "e"}],
            "of another ETag": [first, second | {"etag": first["etag"]}],
        }[change]
        problem = assert_problem(complete(service, place, parts), 422, "invalid_request")
        assert problem["field"] == "parts"
        assert service.keys() == []
        assert complete(service, place, [second, first]).status == 200

    def test_a_part_that_was_never_sent(self, service: Service) -> None:
        """An ETag that somebody made up is none of the store's."""
        place = begin(service)
        first = put(service, place["parts"][0], bytes(PART_BYTES))
        answer = complete(service, place, [first, {"number": 2, "etag": first["etag"]}])
        assert assert_problem(answer, 422, "invalid_request")["field"] == "parts"

    def test_too_large(self, service: Service) -> None:
        """More than the limit is refused before anything is begun."""
        size = 52_428_801
        answer = service.call("POST", "/uploads", json={"filename": "f", "size": size, "parts": True})
        assert assert_problem(answer, 413, "payload_too_large")["field"] == "size"
        assert under_way(service) == 0

    @pytest.mark.parametrize(
        ("parts", "field"),
        [
            ([], "parts"),
            ([{"number": 1}], "parts.0.etag"),
            ([{"number": "one", "etag": "e"}], "parts.0.number"),
            ([{"number": 1, "etag": ""}], "parts.0.etag"),
            ([{"number": 1, "etag": "e"}] * 1001, "parts"),
        ],
    )
    def test_what_is_wrong_is_named(self, service: Service, parts: Any, field: str) -> None:
        """A list that cannot be one of parts is a 422 that names the field."""
        problem = assert_problem(complete(service, begin(service), parts), 422, "invalid_request")
        assert problem["field"] == field


class TestGivingUp:
    def test_what_was_sent_is_removed(self, service: Service) -> None:
        """Once or more often; then it takes no part and cannot be completed, and the answer says what to do."""
        place = begin(service)
        parts = put_all(service, place)
        assert [abort(service, place), abort(service, place)] == [204, 204]
        assert under_way(service) == 0
        assert service.cloud.fetch("PUT", place["parts"][1]["url"], body=bytes(REST)).status_code >= 400
        problem = assert_problem(complete(service, place, parts), 404, "not_found")
        assert "POST /uploads" in problem["detail"]

    def test_what_has_expired(self, service: Service) -> None:
        """What the bucket's lifecycle has removed is answered like what never was."""
        place = begin(service)
        parts = put_all(service, place)
        ticket = Ticket.read(place["upload_id"], owner="ana")
        service.cloud.client("s3").abort_multipart_upload(
            Bucket=service.cloud.bucket("Data"), Key=ticket.key, UploadId=ticket.s3_id
        )
        problem = assert_problem(complete(service, place, parts), 404, "not_found")
        assert "expired" in problem["detail"]
        assert abort(service, place) == 204

    def test_a_complete_file_stays(self, service: Service) -> None:
        """Too late to give up: it can be submitted."""
        place = begin(service)
        complete(service, place, put_all(service, place))
        assert abort(service, place) == 204
        assert service.keys() == [place["s3_key"]]


class TestOwners:
    def test_a_strangers_upload_does_not_exist(self, service: Service) -> None:
        """Neither completed nor given up by another owner; to its own nothing has happened."""
        place, stranger = begin(service), Service(service.cloud, "bob")
        parts = put_all(service, place)
        assert_problem(complete(stranger, place, parts), 404, "not_found")
        assert abort(stranger, place) == 404
        assert complete(service, place, parts).status == 200

    def test_an_id_that_was_made_up_opens_nothing(self, service: Service) -> None:
        """With the stranger's own key in it, or the other's number of bytes: the store knows no such upload."""
        place, stranger = begin(service), Service(service.cloud, "bob")
        parts = put_all(service, place)
        mine = Ticket.read(place["upload_id"], owner="ana")
        theirs = Ticket.read(begin(stranger)["upload_id"], owner="bob")
        forged = {"upload_id": str(Ticket(mine.s3_id, theirs.key, mine.size))}
        assert_problem(complete(stranger, forged, parts), 404, "not_found")
        assert abort(stranger, forged) == 204
        assert service.keys() == []
        assert complete(service, place, parts).status == 200
