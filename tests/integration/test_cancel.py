"""Cancelling, at any moment: the job is canceled or it had completed, and nothing of it is left."""

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


class TestAtAnyMoment:
    @pytest.mark.parametrize("worker", WORKERS)
    def test_with_the_clean_up_at_once(self, service: Service, worker: str) -> None:
        """Canceled and cleaned up between two calls of a worker, which goes on unknowing, a job leaves nothing."""
        for moment in each_moment(service, worker):
            job_id = service.submit(TEXT)
            answers = moment(partial(canceled_and_cleaned_up, service, job_id))
            service.cloud.settle(within=60)
            assert_right(service, job_id, answers)

    @pytest.mark.parametrize("worker", ["validate_document", "finish_job"])
    def test_with_the_clean_up_afterwards(self, service: Service, worker: str) -> None:
        """Canceled between two calls of a worker, a job is canceled, and its clean-up finds all that it wrote."""
        for moment in each_moment(service, worker):
            job_id = service.submit(TEXT)
            answers = moment(partial(service.cancel, job_id))
            service.cloud.settle(within=60)
            assert_right(service, job_id, answers)

    @pytest.mark.parametrize("call", ["InvokeModel", "PutObject"])
    def test_with_a_worker_that_dies(self, service: Service, call: str) -> None:
        """What a worker wrote after the clean-up, before it died, is removed when its message comes again."""
        job_id = service.submit(TEXT)
        canceled = service.cloud.on(
            "*", call, lambda _: canceled_and_cleaned_up(service, job_id), function="worker"
        )
        service.cloud.fail("*", call, Killed, function="worker", after=True, when=is_numbers)
        service.cloud.settle()
        assert canceled.hits == 1
        with service.resting_sweep():
            service.cloud.settle(within=3600)
        service.assert_over(job_id, "canceled")

    def test_with_a_model_that_is_gone(self, service: Service) -> None:
        """What was paid for before the model refused is not kept for a job that is no more."""
        job_id = service.submit(TEXT)

        def refuse(call: Call) -> BaseException:
            if service.job(job_id)["status"] == "running":
                canceled_and_cleaned_up(service, job_id)
            return client_error(call, "ThrottlingException")

        service.cloud.fail(
            "bedrock-runtime", "InvokeModel", refuse, when=lambda call: "two" in call.params["body"], times=None
        )
        with service.resting_sweep():
            service.cloud.settle(within=3600)
        service.assert_over(job_id, "canceled")


class TestTheOwner:
    def test_may_cancel_twice(self, service: Service) -> None:
        """Cancelling again answers the same, and is logged and announced once."""
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
    def test_may_not_cancel_what_has_ended(self, service: Service, text: str, status: str) -> None:
        """A job that is over stays as it is: 409."""
        job_id = service.submit(text)
        service.cloud.settle(within=60)
        before = service.job(job_id)
        assert service.cancel(job_id).status == 409
        assert service.job(job_id) == before
        assert before["status"] == status

    def test_may_not_cancel_what_is_not_theirs(self, service: Service) -> None:
        """Somebody else's job is 404 and goes on."""
        job_id = service.submit(TEXT)
        assert Service(service.cloud, "bob").cancel(job_id).status == 404
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")

    def test_cancels_one_job_of_many(self, service: Service) -> None:
        """Others, of the same document too, complete; the live version stays."""
        jobs = [service.submit(f"{number} {TEXT}", document_id="d") for number in range(3)]
        service.cloud.pause("worker")
        service.cloud.settle()
        service.cancel(jobs[2])
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(jobs[2], "canceled")
        assert service.documents()["d"]["job_id"] == jobs[1]
        assert set(service.vectors()) == {jobs[1][4:]}

    def test_may_run_it_again(self, service: Service) -> None:
        """A canceled job is retried as a new one."""
        job_id = service.submit(TEXT)
        service.cancel(job_id)
        service.cloud.settle(within=60)
        again = service.call("POST", f"/jobs/{job_id}/retry").json()["job_id"]
        service.cloud.settle(within=60)
        service.assert_over(again, "completed")
        service.assert_over(job_id, "canceled")


def each_moment(service: Service, worker: str) -> Iterator[Callable[[Callable[[], Response]], list[Response]]]:
    """Ways to act: before each AWS call of the worker's run that makes most of them, and after the last.

    Each gives a list that will hold what the act answered.
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
    """Canceled if the owner was told so, else completed before; and found by nobody, or by all."""
    (answer,) = answers
    if answer.status == 409:
        service.assert_over(job_id, "completed")
    else:
        assert (answer.status, answer.json()["status"]) == (200, "canceled")
        service.assert_over(job_id, "canceled")
        assert service.steps(job_id)[-1] == "canceled"
