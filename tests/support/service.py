"""The deployed service as one owner sees it through the API, and what only an operator can see behind it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.s3.models import s3_backends

from core.auth import KeyStore
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.functions import ACCOUNT, REGION
from tests.simulated_cloud.rest_api import Response

from . import retries

INDEX = "amazon-titan-embed-text-v2-0-1024"
ROW_BYTES = 4 * 1024
FINAL = {"completed": "document.indexed", "failed": "document.failed", "canceled": "document.canceled"}


class Service:
    """Calls are made with a key of `owner`, which is made on the way."""

    def __init__(self, cloud: Cloud, owner: str = "ana") -> None:
        self.cloud, self.owner = cloud, owner
        self.authorization = {"Authorization": f"Bearer {make_key(cloud, owner)}"}

    # What an owner does

    def call(self, method: str, target: str, **options: Any) -> Response:
        headers = self.authorization | options.pop("headers", {})
        return self.cloud.request(method, target, headers=headers, **options)

    def submit(self, text: str | None = "A short text.", *, key: str | None = None, **fields: Any) -> str:
        """The id of a new document job. `fields`: `document_id` and `s3_key` of the input, others of the body."""
        source = {name: fields.pop(name) for name in ("document_id", "s3_key") if name in fields}
        if "s3_key" not in source:
            source["text"] = text
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.call("POST", "/jobs", json={"kind": "document", "input": source, **fields}, headers=headers)
        assert answer.status == 202, answer.text
        return str(answer.json()["job_id"])

    def upload(self, data: bytes, *, content_type: str = "application/pdf") -> str:
        """The `s3_key` of a file that was put where POST /uploads said, exactly as it said."""
        asked = {"filename": "document", "content_type": content_type, "size": len(data)}
        place = self.call("POST", "/uploads", json=asked).json()
        put = self.cloud.fetch(place["method"], place["url"], body=data, headers=place["headers"])
        assert put.status_code == 200, put.text
        return str(place["s3_key"])

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.call("GET", f"/jobs/{job_id}")
        assert answer.status == 200, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def events(self, job_id: str) -> list[dict[str, Any]]:
        log: list[dict[str, Any]] = self.call("GET", f"/jobs/{job_id}/events").json()["events"]
        return log

    def steps(self, job_id: str) -> list[str]:
        """The verbs of the job's log, without reports of progress."""
        verbs = [event["event"].partition(".")[2] for event in self._log(job_id)]
        return [verb for verb in verbs if verb != "progressed"]

    def cancel(self, job_id: str) -> Response:
        return self.call("POST", f"/jobs/{job_id}/cancel")

    def search(self, query: str, **options: Any) -> list[dict[str, Any]]:
        answer = self.call("POST", "/search", json={"query": query, **options})
        assert answer.status == 200, answer.text
        hits: list[dict[str, Any]] = answer.json()["hits"]
        return hits

    def documents(self) -> dict[str, dict[str, Any]]:
        return {found["document_id"]: found for found in self.call("GET", "/documents").json()["documents"]}

    # What an operator sees, read past the API and its costs

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of objects in the data bucket."""
        return [key for key in self._bucket.keys if key.startswith(prefix)]

    def link_keys(self) -> list[str]:
        """What the tokens of all jobs are signed with."""
        items = dynamodb_backends[ACCOUNT][REGION].tables[self.cloud.table("Jobs").name].all_items()
        return [str(item.attrs["link_key"].value) for item in items if "link_key" in item.attrs]

    def vectors(self) -> Counter[str]:
        """How many vectors there are of each version, of all documents."""
        counts: Counter[str] = Counter()
        for key in self.keys(f"vectors/{INDEX}/"):
            if key.endswith(".f32"):
                counts[key.split("/")[3]] += self._bucket.keys[key].size // ROW_BYTES
        return counts

    def published(self, topic: str, *, job_id: str = "") -> list[dict[str, Any]]:
        """The events that were sent to the topic, of one job or of all, duplicates included."""
        arn = self.cloud.output(topic)
        sent = [call.params for call in self.cloud.calls.log if call.action == "sns:Publish"]
        return [json.loads(p["Message"]) for p in sent if p["TopicArn"] == arn and job_id in p["Message"]]

    def paid_texts(self) -> list[str]:
        """What the model was asked to embed, in order, failed calls included."""
        calls = [call for call in self.cloud.calls.log if call.action == "bedrock-runtime:InvokeModel"]
        return [json.loads(call.params["body"])["inputText"] for call in calls]

    def execution_status(self, job_id: str) -> str | None:
        """Of the execution that is named after the job, whichever state machine it is of."""
        states = self.cloud.client("stepfunctions")
        for machine in self.cloud.deployment.of("AWS::StepFunctions::StateMachine"):
            arn = f"{machine.reference.replace(':stateMachine:', ':execution:')}:{job_id}"
            with suppress(states.exceptions.ExecutionDoesNotExist):
                return str(states.describe_execution(executionArn=arn)["status"])
        return None

    @contextmanager
    def paused_reaper(self) -> Iterator[None]:
        """Inside, no schedule runs: hours pass in few steps, and only what a test does itself helps."""
        rules = [rule for rule in self.cloud.bus.rules if rule.every]
        for rule in rules:
            rule.enabled = False
        try:
            yield
        finally:
            for rule in rules:
                rule.enabled = True
            self.cloud.bus.skip_ticks()

    def let_pass(self, seconds: float, *, every: float = retries.MINUTE) -> None:
        """Advance the clock in few steps. Of the schedules only `retry_scheduler` runs, if it has work."""
        with self.paused_reaper():
            retries.let_pass(self.cloud, seconds, every=every)

    def assert_over(self, job_id: str, status: str, code: str | None = None, stage: str | None = None) -> None:
        """The job ended so, once; everybody was told; nothing of it runs, waits or lies about any more."""
        job, log = self.row(f"JOB#{job_id}", "META"), self._log(job_id)
        error = json.loads(job.get("error", "{}"))
        assert job["status"] == status, job
        assert error.get("code") == code, job
        assert stage is None or error["stage"] == stage, job
        assert [event["sequence"] for event in log] == list(range(1, int(job["sequence"]) + 1))
        endings = [event["event"] for event in log if event["event"] in FINAL.values()]
        assert endings == [FINAL[status]] == [log[-1]["event"]], [event["event"] for event in log]
        self._assert_told(job_id, log)
        self._assert_quiet(job_id, succeeded=status == "completed")
        self._assert_whole_or_absent(job, log[-1])

    def _assert_told(self, job_id: str, log: list[dict[str, Any]]) -> None:
        told = self.published("DocEventsTopic", job_id=job_id)
        alerts = self.published("ErrorAlertsTopic", job_id=job_id)
        for event in log:
            assert event in told
            assert (event in alerts) == event["event"].endswith(".failed"), event

    def _assert_quiet(self, job_id: str, *, succeeded: bool) -> None:
        execution = self.execution_status(job_id)
        assert execution != "RUNNING"
        assert (execution == "SUCCEEDED") == succeeded, execution
        for name in ("Indexing", "Embedding"):
            for kind in ("Queue", "DeadLetters"):
                assert self.cloud.queue(f"{name}/{kind}").bodies == []
        assert self.keys(f"work/{job_id}/") == []

    def _assert_whole_or_absent(self, job: dict[str, Any], ending: dict[str, Any]) -> None:
        version = job["job_id"].removeprefix("job_")
        pointer = self.row(f"OWNER#{self.owner}", f"DOC#{ending['document_id']}")
        if job["status"] == "completed" and pointer["version"] == version:
            assert self.vectors()[version] == int(pointer["chunks"]) == ending["chunks"]
        else:  # it failed, was canceled, replaced or deleted
            assert pointer.get("version") != version
            assert version not in self.vectors()

    @property
    def _bucket(self) -> Any:
        return s3_backends[ACCOUNT]["aws"].buckets[self.cloud.bucket("Data")]

    def _log(self, job_id: str) -> list[dict[str, Any]]:
        rows = self.rows(f"JOB#{job_id}")
        return [json.loads(rows[key]["body"]) for key in sorted(rows) if key.startswith("EVENT#")]

    def row(self, pk: str, sk: str) -> dict[str, Any]:
        """An item of the jobs table, as texts and numbers (as texts); empty where there is none."""
        return self.rows(pk).get(sk, {})

    def rows(self, pk: str) -> dict[str, dict[str, Any]]:
        """The texts and numbers (as texts) of a partition of the jobs table, by sort key."""
        items = dynamodb_backends[ACCOUNT][REGION].tables[self.cloud.table("Jobs").name].items
        found = items.get(DynamoType({"S": pk}), {})
        return {sk.value: {name: value.value for name, value in item.attrs.items()} for sk, item in found.items()}


def make_key(cloud: Cloud, owner: str, **options: Any) -> str:
    """The token of a new API key."""
    table = cloud.table("Keys")
    token, _ = KeyStore(table.meta.client, table.name).create(owner=owner, **options)
    return token
