"""Uploads in parts, through the gateway, the signed URLs and the rules of S3."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rest.api.parts import PART_BYTES, MultipartId
from tests.simulated_cloud.rest_api import Response
from tests.support import pdfs
from tests.support.problems import assert_problem
from tests.support.service import Service

Knob = Callable[..., None]
REST = 1000


def large_pdf(text: str) -> bytes:
    """A page with this text in a file of two parts, most of which is an unused stream."""
    noise = random.Random(1).randbytes(PART_BYTES)
    return pdfs.write(pdfs.document(pdfs.show(text)) | {9: pdfs.stream(noise)})


def begin(service: Service, size: int = PART_BYTES + REST, **other: Any) -> dict[str, Any]:
    request = {"filename": "table.pdf", "content_type": "application/pdf", "size": size, "parts": True}
    answer = service.call("POST", "/uploads", json=request | other)
    assert answer.status == 201, answer.text
    place: dict[str, Any] = answer.json()
    return place


def put(service: Service, part: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Uploads a part; returns its entry for `complete`."""
    answer = service.cloud.fetch("PUT", part["url"], body=data)
    assert answer.status_code == 200, answer.text
    return {"number": part["number"], "etag": answer.headers["ETag"]}


def put_all(service: Service, place: dict[str, Any], data: bytes | None = None) -> list[dict[str, Any]]:
    """Uploads all parts, the last first; zeros if no data is given."""
    data = bytes(sum(part["size"] for part in place["parts"])) if data is None else data
    starts = [(part["number"] - 1) * place["part_size"] for part in place["parts"]]
    cut = [data[start : start + part["size"]] for start, part in zip(starts, place["parts"], strict=True)]
    return [put(service, part, some) for part, some in reversed([*zip(place["parts"], cut, strict=True)])]


def complete(service: Service, place: dict[str, Any], parts: Sequence[dict[str, Any]]) -> Response:
    return service.call("POST", f"/uploads/{place['upload_id']}/complete", json={"parts": parts})


def abort(service: Service, place: dict[str, Any]) -> int:
    return service.call("DELETE", f"/uploads/{place['upload_id']}").status


def uploads_in_progress(service: Service) -> int:
    """The multipart uploads in S3."""
    s3, bucket = service.cloud.client("s3"), service.cloud.bucket("Data")
    return len(s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def stored(service: Service, key: str) -> bytes:
    data: bytes = (
        service.cloud.client("s3").get_object(Bucket=service.cloud.bucket("Data"), Key=key)["Body"].read()
    )
    return data


class TestCompleting:
    def test_document(self, service: Service) -> None:
        """Parts that are uploaded in any order become the file, whose ETag the job pins, and its text is found."""
        data = large_pdf("Contrato")
        place = begin(service, len(data))
        answer = complete(service, place, put_all(service, place, data))
        assert answer.status == 200
        done = answer.json()
        assert (done["s3_key"], done["size"]) == (place["s3_key"], len(data))
        assert stored(service, place["s3_key"]) == data
        assert uploads_in_progress(service) == 0
        job_id = service.submit(s3_key=place["s3_key"], document_id="d")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert done["etag"].endswith('-2"')
        pinned = [c.params for c in service.cloud.calls.of("validate_document") if c.operation == "GetObject"]
        assert [params["IfMatch"] for params in pinned] == [done["etag"]]
        assert service.search("Contrato")[0]["document_id"] == "d"

    def test_complete_twice(self, service: Service) -> None:
        """Completing again returns the same, also after a lost response."""
        place = begin(service)
        parts = put_all(service, place)
        with service.cloud.fail("s3", "CompleteMultipartUpload", "InternalError", after=True):
            assert_problem(complete(service, place, parts), 500, "internal")
        first, second = complete(service, place, parts), complete(service, place, parts)
        assert (first.status, first.json()) == (200, second.json())
        assert service.keys() == [place["s3_key"]]

    @pytest.mark.parametrize("refusal", ["PreconditionFailed", "NoSuchUpload"])
    def test_errors_of_second_completion(self, service: Service, refusal: str) -> None:
        """Whichever error S3 returns for a completed upload, the response is the file."""
        place = begin(service)
        parts = put_all(service, place)
        first = complete(service, place, parts)
        with service.cloud.fail("s3", "CompleteMultipartUpload", refusal):
            assert complete(service, place, parts).json() == first.json()

    def test_concurrent_completion(self, service: Service) -> None:
        """The second of two concurrent requests is request to try again, and then returns the file."""
        place = begin(service)
        parts = put_all(service, place)
        with service.cloud.fail("s3", "CompleteMultipartUpload", "ConditionalRequestConflict"):
            answer = complete(service, place, parts)
        assert_problem(answer, 503, "contended")
        assert answer.headers["Retry-After"] == "1"
        assert complete(service, place, parts).status == 200

    def test_no_overwriting(self, service: Service) -> None:
        """S3 is told not to overwrite an object."""
        place = begin(service)
        complete(service, place, put_all(service, place))
        (call,) = [c for c in service.cloud.calls.of("api") if c.operation == "CompleteMultipartUpload"]
        assert call.params["IfNoneMatch"] == "*"

    def test_expired_file(self, service: Service) -> None:
        """A file that has expired since is a 404."""
        place = begin(service)
        parts = put_all(service, place)
        complete(service, place, parts)
        service.cloud.client("s3").delete_object(Bucket=service.cloud.bucket("Data"), Key=place["s3_key"])
        assert_problem(complete(service, place, parts), 404, "not_found")

    def test_incomplete_upload(self, service: Service) -> None:
        """An incomplete upload cannot be submitted."""
        place = begin(service)
        put_all(service, place)
        job = {"kind": "document", "input": {"s3_key": place["s3_key"]}}
        problem = assert_problem(service.call("POST", "/jobs", json=job), 422, "invalid_request")
        assert problem["field"] == "input.s3_key"
        assert "complete" in problem["detail"]


class TestRefusals:
    def test_signature_of_part(self, service: Service) -> None:
        """Another size, number, method or a later time is refused."""
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
    def test_list_of_parts(self, service: Service, change: str) -> None:
        """Any other list of parts is a 422, and the upload can still be completed."""
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

    def test_unknown_etag(self, service: Service) -> None:
        """An unknown ETag is refused."""
        place = begin(service)
        first = put(service, place["parts"][0], bytes(PART_BYTES))
        answer = complete(service, place, [first, {"number": 2, "etag": first["etag"]}])
        assert assert_problem(answer, 422, "invalid_request")["field"] == "parts"

    def test_too_large(self, service: Service) -> None:
        """A file over the limit is refused, and no upload is started."""
        size = 52_428_801
        answer = service.call("POST", "/uploads", json={"filename": "f", "size": size, "parts": True})
        assert assert_problem(answer, 413, "payload_too_large")["field"] == "size"
        assert uploads_in_progress(service) == 0

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
    def test_invalid_lists(self, service: Service, parts: Any, field: str) -> None:
        """An invalid list is a 422 that names the field."""
        problem = assert_problem(complete(service, begin(service), parts), 422, "invalid_request")
        assert problem["field"] == field


class TestAbort:
    def test_abort(self, service: Service) -> None:
        """Aborting, also repeatedly, deletes the parts. Then the upload is a 404."""
        place = begin(service)
        parts = put_all(service, place)
        assert [abort(service, place), abort(service, place)] == [204, 204]
        assert uploads_in_progress(service) == 0
        assert service.cloud.fetch("PUT", place["parts"][1]["url"], body=bytes(REST)).status_code >= 400
        problem = assert_problem(complete(service, place, parts), 404, "not_found")
        assert "POST /uploads" in problem["detail"]

    def test_expired_upload(self, service: Service) -> None:
        """An upload that the bucket's lifecycle has removed is a 404."""
        place = begin(service)
        parts = put_all(service, place)
        ticket = MultipartId.read(place["upload_id"], owner="ana")
        service.cloud.client("s3").abort_multipart_upload(
            Bucket=service.cloud.bucket("Data"), Key=ticket.key, UploadId=ticket.s3_id
        )
        problem = assert_problem(complete(service, place, parts), 404, "not_found")
        assert "expired" in problem["detail"]
        assert abort(service, place) == 204

    def test_complete_file(self, service: Service) -> None:
        """A complete file is not deleted, and can be submitted."""
        place = begin(service)
        complete(service, place, put_all(service, place))
        assert abort(service, place) == 204
        assert service.keys() == [place["s3_key"]]


class TestOwners:
    def test_upload_of_other_owner(self, service: Service) -> None:
        """Another owner can neither complete nor abort an upload."""
        place, stranger = begin(service), Service(service.cloud, "bob")
        parts = put_all(service, place)
        assert_problem(complete(stranger, place, parts), 404, "not_found")
        assert abort(stranger, place) == 404
        assert complete(service, place, parts).status == 200

    def test_forged_upload_id(self, service: Service) -> None:
        """S3 does not know the upload of a forged id."""
        place, stranger = begin(service), Service(service.cloud, "bob")
        parts = put_all(service, place)
        mine = MultipartId.read(place["upload_id"], owner="ana")
        theirs = MultipartId.read(begin(stranger)["upload_id"], owner="bob")
        forged = {"upload_id": str(MultipartId(mine.s3_id, theirs.key, mine.size))}
        assert_problem(complete(stranger, forged, parts), 404, "not_found")
        assert abort(stranger, forged) == 204
        assert service.keys() == []
        assert complete(service, place, parts).status == 200
