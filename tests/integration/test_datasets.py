"""Dataset jobs on the simulated cloud: their files, their failures, and what is left of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.support.kinds import ORDERS
from tests.support.service import Service

HOUR = 3600.0


def submitted(service: Service, **options: Any) -> str:
    key = options.pop("s3_key", None) or service.upload(ORDERS, content_type="text/csv")
    given = {"s3_key": key, "target": "returned", **options}
    answer = service.call("POST", "/jobs", json={"kind": "dataset", "input": given})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def test_files(service: Service) -> None:
    """Another file's rows are predicted by their id, all files are as the manifest says, and each has a link."""
    rows = b"price,order,region\n" + b"".join(b"%d.5,=a%d,north\n" % (n, n) for n in range(9)) + b"bad\n"
    job_id = submitted(service, id_column="order", predict_s3_key=service.upload(rows, content_type="text/csv"))
    service.cloud.settle(within=HOUR)
    job = service.job(job_id)
    assert job["status"] == "completed", job
    assert (job["result"]["rows"], job["result"]["rows_predicted"]) == (160, 9)
    found = {
        job["result"]["files"][label]: service.cloud.fetch("GET", link).content
        for label, link in job["files"].items()
    }
    assert found.keys() == set(job["result"]["files"].values())
    for file in job["result"]["exported"]:
        data = found[file["name"]]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    lines = found["predictions.csv"].decode().splitlines()
    assert lines[0] == "record_number,order,prediction,probability"
    assert [line.split(",")[1] for line in lines[1:]] == [f"'=a{n}" for n in range(9)]
    unpredicted = found["unpredicted.jsonl"].decode().splitlines()
    assert [json.loads(line)["record"] for line in unpredicted] == [10]


def test_long_names(service: Service) -> None:
    """Names and classes as long as a record do not make events that cannot be sent."""
    name, label = b"n" * 200_000, b"c" * 100_000
    data = (
        ORDERS.replace(b"price", name, 1).replace(b",yes", b"," + label).replace(b",no\n", b",d" + label + b"\n")
    )
    job_id = submitted(service, s3_key=service.upload(data, content_type="text/csv"))
    service.cloud.settle(within=HOUR)
    assert service.job(job_id)["status"] == "completed", service.job(job_id)["error"]
    assert max(len(json.dumps(event)) for event in service.events(job_id)) < 32 * 1024


@pytest.mark.parametrize(
    ("data", "options", "code", "stage"),
    [
        (b"a,b\n", {"target": "b"}, "no_rows", "clean"),
        (ORDERS, {"target": "nothing"}, "target_missing", "clean"),
        (ORDERS, {"id_column": "nothing"}, "column_missing", "clean"),
        (ORDERS.replace(b",yes", b",no"), {}, "target_single_class", "train"),
        (ORDERS, {"predict": b"price\n1\n"}, "schema_mismatch", "predict"),
    ],
)
def test_failures(service: Service, data: bytes, options: dict[str, Any], code: str, stage: str) -> None:
    """A file that cannot be worked with fails the job with a code, at once, and nothing is left of the results."""
    given = dict(options)
    if "predict" in given:
        given["predict_s3_key"] = service.upload(given.pop("predict"), content_type="text/csv")
    job_id = submitted(service, s3_key=service.upload(data, content_type="text/csv"), **given)
    service.cloud.settle(within=HOUR)
    error = service.job(job_id)["error"]
    assert (error["code"], error["stage"]) == (code, stage)
    assert service.keys(f"results/ana/{job_id}/") == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"id_column": "returned"}, "input.id_column"),
        ({"drop": ["returned"]}, "input.drop"),
        ({"predict_s3_key": "uploads/bob/upl_1/x.csv"}, "input.predict_s3_key"),
        ({"target": ""}, "input.target"),
        ({"date_columns": {"a": "ydm"}}, "input.date_columns.a"),
    ],
)
def test_refused(service: Service, given: dict[str, Any], field: str) -> None:
    """A request that contradicts itself, or names another owner's file, is refused; the error names the field."""
    key = service.upload(ORDERS, content_type="text/csv")
    body = {"kind": "dataset", "input": {"s3_key": key, "target": "returned", **given}}
    answer = service.call("POST", "/jobs", json=body)
    assert (answer.status, answer.json()["field"]) == (422, field)


@pytest.mark.parametrize("function", ["clean_dataset", "train_model", "predict_rows", "export_results"])
def test_cancel(service: Service, function: str) -> None:
    """Of a job that is canceled while a stage writes, no file is left."""
    rule = service.cloud.on(
        "s3", "PutObject", lambda _: service.cancel(job_id), function=function, when=lambda call: call.index > 1
    )
    job_id = submitted(service)
    service.cloud.settle(within=HOUR)
    assert rule.hits == 1
    assert service.job(job_id)["status"] == "canceled"
    assert service.keys(f"results/ana/{job_id}/") + service.keys(f"work/{job_id}/") == []
