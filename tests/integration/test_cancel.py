"""Canceling at any time: the job is canceled or had completed, and no files are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.simulated_cloud.calls import Call, Killed, client_error
from tests.simulated_cloud.rest_api import Response
from tests.support.service import Service

Knob = Callable[..., None]

WORKERS = ["start_job", "validate_document", "chunk_document", "worker", "store_vectors", "finish_job"]
TEXT = "Chunk number one of this text.\n\nChunk number two of this text."


@pytest.fixture(autouse=True)
def small_chunks(knob: Knob) -> None:
    """A short text makes two chunks."""
    knob("ChunkDocument", CHUNK_SIZE=40, CHUNK_OVERLAP=0)


class TestAtAnyTime:
    @pytest.mark.parametrize("worker", WORKERS)
    def test_immediate_clean_up(self, service: Service, worker: str) -> None:
        """A job that is canceled and cleaned up between two calls of a worker leaves nothing."""
        for moment in each_moment(service, worker):
            job_id = service.submit(TEXT)
            answers = moment(partial(canceled_and_cleaned_up, service, job_id))
            service.cloud.settle(within=60)
            assert_right(service, job_id, answers)

    @pytest.mark.parametrize("worker", ["validate_document", "finish_job"])
    def test_later_clean_up(self, service: Service, worker: str) -> None:
        """A job that is canceled between two calls of a worker is canceled, and its clean-up deletes all files."""
        for moment in each_moment(service, worker):
            job_id = service.submit(TEXT)
            answers = moment(partial(service.cancel, job_id))
            service.cloud.settle(within=60)
            assert_right(service, job_id, answers)

    @pytest.mark.parametrize("call", ["InvokeModel", "PutObject"])
    def test_killed_worker(self, service: Service, call: str) -> None:
        """What a killed worker wrote after the clean-up is deleted when its message is received again."""
        job_id = service.submit(TEXT)
        canceled = service.cloud.on(
            "*", call, lambda _: canceled_and_cleaned_up(service, job_id), function="worker"
        )
        service.cloud.fail("*", call, Killed, function="worker", after=True, when=is_numbers)
        service.cloud.settle()
        assert canceled.hits == 1
        with service.paused_reaper():
            service.cloud.settle(within=3600)
        service.assert_over(job_id, "canceled")

    def test_failing_model(self, service: Service) -> None:
        """Vectors of a canceled job from before a failure of the model are not kept."""
        job_id = service.submit(TEXT)

        def refuse(call: Call) -> BaseException:
            if service.job(job_id)["status"] == "running":
                canceled_and_cleaned_up(service, job_id)
            return client_error(call, "ThrottlingException")

        service.cloud.fail(
            "bedrock-runtime", "InvokeModel", refuse, when=lambda call: "two" in call.params["body"], times=None
        )
        with service.paused_reaper():
            service.cloud.settle(within=3600)
        service.assert_over(job_id, "canceled")


class TestTheOwner:
    def test_cancel_twice(self, service: Service) -> None:
        """Canceling again returns the same, and is logged and published once."""
        job_id = service.submit(TEXT)
        first, second = service.cancel(job_id), service.cancel(job_id)
        assert first.status == second.status == 200
        assert first.json() == second.json()
        service.cloud.settle(within=60)
        assert service.cancel(job_id).json() == first.json()
        service.assert_over(job_id, "canceled")
        assert service.steps(job_id) == ["uploaded", "canceled"]
        assert service.execution_status(job_id) is None

    @pytest.mark.parametrize(("text", "status"), [(TEXT, "completed"), (" ", "failed")])
    def test_ended_job(self, service: Service, text: str, status: str) -> None:
        """Canceling a job that has ended is a 409."""
        job_id = service.submit(text)
        service.cloud.settle(within=60)
        before = service.job(job_id)
        assert service.cancel(job_id).status == 409
        assert service.job(job_id) == before
        assert before["status"] == status

    def test_job_of_other_owner(self, service: Service) -> None:
        """Canceling another owner's job is a 404."""
        job_id = service.submit(TEXT)
        assert Service(service.cloud, "bob").cancel(job_id).status == 404
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")

    def test_other_jobs(self, service: Service) -> None:
        """Other jobs, also of the same document, complete, and the live version stays."""
        jobs = [service.submit(f"{number} {TEXT}", document_id="d") for number in range(3)]
        service.cloud.pause("worker")
        service.cloud.settle()
        service.cancel(jobs[2])
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(jobs[2], "canceled")
        assert service.documents()["d"]["job_id"] == jobs[1]
        assert set(service.vectors()) == {jobs[1][4:]}

    def test_retry(self, service: Service) -> None:
        """A canceled job can be retried as a new one."""
        job_id = service.submit(TEXT)
        service.cancel(job_id)
        service.cloud.settle(within=60)
        again = service.call("POST", f"/jobs/{job_id}/retry").json()["job_id"]
        service.cloud.settle(within=60)
        service.assert_over(again, "completed")
        service.assert_over(job_id, "canceled")


def each_moment(service: Service, worker: str) -> Iterator[Callable[[Callable[[], Response]], list[Response]]]:
    """Acts before each AWS call of the worker's run with most calls, and after the last. Each yields a list for
    the act's responses.
    """
    service.submit(TEXT)
    service.cloud.settle(within=60)
    last = max(found.calls for found in service.cloud.functions.invocations if found.name == worker)

    def moment(number: int, *, after: bool, act: Callable[[], Response]) -> list[Response]:
        answers: list[Response] = []
        service.cloud.on(
            "*",
            "*",
            lambda call: answers.append(act()),
            function=worker,
            when=lambda call: call.index == number,
            after=after,
        )
        return answers

    for number in range(1, last + 1):
        yield lambda act, number=number: moment(number, after=False, act=act)
    yield lambda act: moment(last, after=True, act=act)


def canceled_and_cleaned_up(service: Service, job_id: str) -> Response:
    answer = service.cancel(job_id)
    service.cloud.poll("publisher")
    service.cloud.poll("start_job")
    return answer


def is_numbers(call: Call) -> bool:
    return str(call.params.get("Key", ".f32")).endswith(".f32")


def assert_right(service: Service, job_id: str, answers: list[Response]) -> None:
    """The job is canceled if the owner was told so, else completed; the document is found accordingly."""
    (answer,) = answers
    if answer.status == 409:
        service.assert_over(job_id, "completed")
    else:
        assert (answer.status, answer.json()["status"]) == (200, "canceled")
        service.assert_over(job_id, "canceled")
        assert service.steps(job_id)[-1] == "canceled"
