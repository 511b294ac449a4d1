"""The document state machine, executed: what each state does about each kind of error, and how a job ends then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from moto.stepfunctions.parser.asl.component.state.exec.state_task.lambda_eval_utils import (
    LambdaFunctionErrorException,
)

from core.errors import Contended, CountMismatch, RecadoError, Throttled, Unavailable
from tests.simulated_cloud.calls import Call, CallRule
from tests.support.service import Service

# state: function, stage, and the AWS call at which its work can fail
WORKERS = {
    "ValidateDocument": ("validate_document", "validate", ("s3", "GetObject")),
    "ChunkDocument": ("chunk_document", "chunk", ("s3", "GetObject")),
    "StoreVectors": ("store_vectors", "store", ("s3", "ListObjectsV2")),
    "NotifySuccess": ("finish_job", "notify", ("dynamodb", "TransactWriteItems")),
}
STAGES = {state: stage for state, (_, stage, _) in WORKERS.items()} | {"EmbedChunks": "embed"}
GOOD = ["uploaded", "started", "chunked", "embedded", "indexed"]
CRASHES = ["Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown"]
FAULTS = [f"Lambda.{name}" for name in ("TooManyRequestsException", "ServiceException", "SdkClientException")]


class Crash(Exception):
    """An error that nobody has foreseen."""


def fail_work(service: Service, state: str, failure: Any, **options: Any) -> CallRule:
    """Let the function of this state raise, after it has claimed the stage."""
    function, _, call = WORKERS[state]
    return service.cloud.fail(*call, failure, function=function, when=is_work, **options)


def is_work(call: Call) -> bool:
    """Telling of a failure goes through the same function as finishing, and shall not meet its errors."""
    return call.operation != "TransactWriteItems" or "result" in call.params["TransactItems"][0]["Put"]["Item"]


def fail_state(service: Service, state: str, error: str, **options: Any) -> CallRule:
    """Let the state meet an error that no function raised, such as one of Lambda itself."""
    name = {"NotifyFailure": "FinishJob", "NotifySuccess": "FinishJob"}.get(state, state)
    function = service.cloud.name("AWS::Lambda::Function", name)

    def matches(call: Call) -> bool:
        is_failure = "error" in json.loads(call.params["Payload"])
        return function in call.params["FunctionName"] and is_failure == (state == "NotifyFailure")

    payload = json.dumps({"errorType": error, "errorMessage": "injected"})
    failure = LambdaFunctionErrorException(None, payload)
    return service.cloud.fail("lambda", "Invoke", failure, when=matches, **options)


def entered(service: Service, job_id: str) -> list[str]:
    return service.cloud.execution(job_id).states


class TestRetries:
    @pytest.mark.parametrize("error", [Throttled, Contended, Unavailable])
    def test_each_state_survives_a_retryable_error(self, service: Service, error: type[RecadoError]) -> None:
        """An error worth another try is retried under its own name, in every state; the log says so."""
        rules = [fail_work(service, state, error("busy")) for state in WORKERS]
        job_id = service.submit()
        service.cloud.settle(within=60)
        assert [rule.hits for rule in rules] == [1] * len(WORKERS)
        service.assert_over(job_id, "completed")
        again = [event for event in service.events(job_id) if event["event"] == "document.retried"]
        assert [(event["stage"], event["attempts"]) for event in again] == [
            ("validate", 2),
            ("chunk", 2),
            ("store", 2),
        ]
        assert [step for step in service.steps(job_id) if step != "retried"] == GOOD

    def test_the_third_attempt_may_succeed(self, service: Service) -> None:
        """Each state has three attempts, and the job says how many its stage has used."""
        for state in WORKERS:
            fail_work(service, state, Throttled("busy"), times=2)
        job_id, seen = service.submit(), []
        look = lambda call: seen.append((service.job(job_id)["stage"], service.job(job_id)["attempts"]))  # noqa: E731
        service.cloud.on("s3", "*", look, when=lambda call: call.function in STAGE_FUNCTIONS, times=None)
        service.cloud.settle(within=200)
        service.assert_over(job_id, "completed")
        assert {("validate", 3), ("chunk", 3), ("store", 3)} <= set(seen)
        assert service.steps(job_id).count("retried") == 6

    @pytest.mark.parametrize("state", WORKERS)
    def test_a_fourth_attempt_is_not_made(self, service: Service, state: str) -> None:
        """An error that does not pass ends the job with the error's code at this stage, within minutes."""
        rule = fail_work(service, state, Throttled("busy"), times=None)
        job_id, started = service.submit(), service.cloud.clock.time
        service.cloud.settle(within=200)
        assert rule.hits == 3
        service.assert_over(job_id, "failed", "throttled", STAGES[state])
        assert "busy" not in service.job(job_id)["error"]["message"]
        assert service.cloud.clock.time - started < 60

    def test_faults_of_lambda_are_waited_out(self, service: Service) -> None:
        """Refusals and faults of Lambda itself are retried eight times, and cost the job none of its attempts."""
        rules = [fail_state(service, state, FAULTS[n % 3], times=8) for n, state in enumerate(WORKERS)]
        job_id = service.submit()
        service.cloud.settle(within=3600)
        assert [rule.hits for rule in rules] == [8] * len(WORKERS)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD

    def test_lambda_that_stays_away_ends_the_job(self, service: Service) -> None:
        """After nine refusals the job fails at this stage, and its owner is told nothing of the inside."""
        fail_state(service, "ChunkDocument", FAULTS[0], times=9)
        job_id = service.submit()
        with service.paused_reaper():
            service.cloud.settle(within=3600)
        service.assert_over(job_id, "failed", "unavailable", "chunk")
        assert "injected" not in json.dumps(service.job(job_id))

    def test_a_worker_that_dies_is_run_again(self, service: Service) -> None:
        """A process that is gone, for memory, time or no known reason, is retried."""
        for number, state in enumerate(WORKERS):
            fail_state(service, state, CRASHES[number % 3], times=2)
        job_id = service.submit()
        service.cloud.settle(within=200)
        service.assert_over(job_id, "completed")

    def test_a_queue_that_is_down_is_waited_out(self, service: Service) -> None:
        """The message to the embedding worker is sent again; after six refusals the job fails at `embed`."""
        to_embedding = service.cloud.queue("Embedding/Queue").url
        options = {"when": lambda call: call.params["QueueUrl"] == to_embedding}
        service.cloud.fail("sqs", "SendMessage", "InternalError", times=5, **options)
        patient = service.submit()
        service.cloud.settle(within=600)
        service.assert_over(patient, "completed")
        service.cloud.fail("sqs", "SendMessage", "InternalError", times=6, **options)
        unlucky = service.submit()
        service.cloud.settle(within=600)
        service.assert_over(unlucky, "failed", "unavailable", "embed")


STAGE_FUNCTIONS = {function for function, _, _ in WORKERS.values()}


class TestFailures:
    @pytest.mark.parametrize("state", WORKERS)
    def test_a_failure_of_the_job_is_not_retried(self, service: Service, state: str) -> None:
        """What another try cannot help ends the job at once with its own code and message, at this stage."""
        rule = fail_work(service, state, CountMismatch("Two is not three."), times=None)
        job_id = service.submit()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "count_mismatch", STAGES[state])
        assert rule.hits == 1
        assert service.job(job_id)["error"]["message"] == "Two is not three."
        assert entered(service, job_id)[-4:] == [state, f"{state}Failed", "NotifyFailure", "Failed"]

    @pytest.mark.parametrize("state", WORKERS)
    def test_an_unforeseen_error_ends_the_job(self, service: Service, state: str) -> None:
        """Any exception at all is caught: the job fails as `internal`, and what it said stays inside."""
        rule = fail_work(service, state, Crash("password in the clear"), times=None)
        job_id = service.submit()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "internal", STAGES[state])
        assert rule.hits == 1
        assert "password" not in json.dumps([service.job(job_id), service.events(job_id)])

    @pytest.mark.parametrize(
        ("failure", "code", "seconds"),
        [
            (CountMismatch("Two is not three."), "count_mismatch", 60),
            (Crash("no"), "internal", 3600),
        ],
    )
    def test_a_failed_token_ends_the_job(
        self, service: Service, failure: Exception, code: str, seconds: int
    ) -> None:
        """The worker fails its token, at once or when the receives are used up, and Catch does the rest."""
        service.cloud.fail("bedrock-runtime", "InvokeModel", failure, times=None)
        job_id = service.submit()
        service.cloud.settle(within=seconds)
        service.assert_over(job_id, "failed", code, "embed")
        assert "NotifyFailure" in entered(service, job_id)

    def test_a_token_nobody_answers_times_out(self, service: Service) -> None:
        """The state's own clock is the job's deadline: with the sweep at rest, it ends the job all the same."""
        service.cloud.pause("worker")
        job_id = service.submit()
        with service.paused_reaper():
            service.cloud.settle(within=4 * 3600)
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded", "embed")
        assert service.paid_texts() == []


class TestLastResort:
    @pytest.mark.parametrize("error", ["Crash", CRASHES[0], FAULTS[0]])
    def test_telling_of_a_failure_is_tried_again(self, service: Service, error: str) -> None:
        """Whatever keeps NotifyFailure from its work, it is run up to eleven times, and the reason is kept."""
        fail_work(service, "ChunkDocument", CountMismatch("Two is not three."))
        rule = fail_state(service, "NotifyFailure", error, times=10)
        job_id = service.submit()
        service.cloud.settle(within=3600)
        assert rule.hits == 10
        service.assert_over(job_id, "failed", "count_mismatch", "chunk")

    def test_if_it_cannot_be_told_the_rule_ends_the_job(self, service: Service) -> None:
        """When NotifyFailure is used up, the execution fails, and the rule on ended executions does the rest."""
        fail_work(service, "ChunkDocument", CountMismatch("Two is not three."))
        fail_state(service, "NotifyFailure", "Unavailable", times=None)
        job_id = service.submit()
        service.cloud.settle(within=3600)
        assert service.cloud.execution(job_id).status == "FAILED"
        service.assert_over(job_id, "failed", "internal", "chunk")

    def test_the_rule_is_tried_again(self, service: Service) -> None:
        """Lambda repeats an asynchronous invocation twice, after one and two minutes."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        service.cloud.kill("finish_job", after=0)
        service.cloud.fail("dynamodb", "TransactWriteItems", Crash, function="finish_job")
        stop(service, job_id)
        service.cloud.resume()
        service.cloud.settle(within=300)
        service.assert_over(job_id, "failed", "aborted", "embed")

    def test_an_operator_may_stop_an_execution(self, service: Service) -> None:
        """An aborted execution passes by every Catch, and its job fails as `aborted` at the stage it was in."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        stop(service, job_id)
        service.cloud.settle()
        assert service.job(job_id)["error"]["code"] == "aborted"
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "aborted", "embed")
        assert service.paid_texts() == []

    def test_an_execution_that_timed_out_ends_its_job(self, service: Service) -> None:
        """A TIMED_OUT execution, which no state of it can tell of, is an exceeded deadline."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        execution = service.cloud.execution(job_id)
        machine = service.cloud.output("DocumentStateMachine")
        detail = {"name": job_id, "status": "TIMED_OUT", "stateMachineArn": machine, "executionArn": execution.arn}
        service.cloud.bus.put("aws.states", "Step Functions Execution Status Change", detail, [execution.arn])
        service.cloud.settle()
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded", "embed")

    def test_what_ends_well_or_has_ended_is_left_alone(self, service: Service) -> None:
        """A late word of an execution's end changes nothing for a job that is final."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        detail = {
            "name": job_id,
            "status": "FAILED",
            "stateMachineArn": service.cloud.output("DocumentStateMachine"),
        }
        service.cloud.bus.put("aws.states", "Step Functions Execution Status Change", detail, [])
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")

    def test_a_closed_job_ends_its_execution_quietly(self, service: Service) -> None:
        """A worker that finds its job closed stops the execution, and the job stays as it was closed."""
        service.cloud.on("s3", "GetObject", lambda call: service.cancel(job_id), function="chunk_document")
        job_id = service.submit()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "canceled")
        assert service.published("ErrorAlertsTopic") == []


class TestStart:
    def test_an_execution_starts_once(self, service: Service) -> None:
        """The same event again, while the execution waits to claim its job, starts no other and ends nothing."""
        fail_state(service, "ValidateDocument", FAULTS[0])
        job_id = service.submit()
        service.cloud.settle()
        for _ in range(2):
            service.cloud.clock.advance(1)
            service.cloud.queue("Indexing/Queue").send(service.published("DocEventsTopic")[0])
            assert service.cloud.poll("start_job") == 1
        assert service.job(job_id)["status"] == "queued"
        service.cloud.settle(within=60)
        assert len(service.cloud.executions.all()) == 1
        service.assert_over(job_id, "completed")

    def test_a_second_execution_touches_nothing(self, service: Service) -> None:
        """An execution that does not hold the job, started by hand, fails, and the one that does goes on."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        given = json.dumps(service.cloud.execution(job_id).input)
        machine = service.cloud.output("DocumentStateMachine")
        service.cloud.client("stepfunctions").start_execution(stateMachineArn=machine, name="again", input=given)
        service.cloud.settle(within=300)
        assert service.cloud.execution("again").status == "FAILED"
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD

    def test_a_start_whose_answer_was_lost(self, service: Service) -> None:
        """The message comes again, finds the execution at work, and is done."""
        service.cloud.fail("stepfunctions", "StartExecution", "InternalServerError", after=True)
        job_id = service.submit()
        service.cloud.settle(within=600)
        assert len(service.cloud.executions.all()) == 1
        service.assert_over(job_id, "completed")

    def test_a_start_that_was_refused_is_tried_again(self, service: Service) -> None:
        """StartExecution is throttled now and then: that message waits in its queue, those beside it do not."""
        service.cloud.fail("stepfunctions", "StartExecution", "ThrottlingException")
        refused, other = service.submit(), service.submit()
        service.cloud.settle(within=60)
        assert [service.job(job_id)["status"] for job_id in (refused, other)] == ["queued", "completed"]
        service.cloud.settle(within=400)
        service.assert_over(refused, "completed")

    def test_a_job_that_cannot_be_started_fails(self, service: Service) -> None:
        """After five receives the message is dead, and the sweep ends the job with a reason."""
        service.cloud.fail("stepfunctions", "StartExecution", "ThrottlingException", times=None)
        job_id = service.submit()
        with service.paused_reaper():
            service.cloud.settle(within=3600)
        service.cloud.invoke("reaper", {})
        service.cloud.settle()
        service.assert_over(job_id, "failed", "not_started")

    def test_an_execution_that_was_lost_ends_its_job(self, service: Service) -> None:
        """If the execution of this name has ended and nobody told, the job fails as `execution_lost`."""
        with service.cloud.fail("*", "*", Crash, function="finish_job", times=None):
            service.cloud.fail("*", "*", Crash, function="validate_document", times=None)
            service.cloud.fail("stepfunctions", "StartExecution", "InternalServerError", after=True)
            job_id = service.submit()
            service.cloud.pause("start_job")
            service.cloud.poll("publisher")
            service.cloud.poll("start_job")
            service.cloud.settle(within=3600)
        assert service.job(job_id)["status"] == "queued"
        assert service.cloud.execution(job_id).status == "FAILED"
        service.cloud.resume()
        service.cloud.settle(within=600)
        service.assert_over(job_id, "failed", "execution_lost")


def stop(service: Service, job_id: str) -> None:
    arn = service.cloud.execution(job_id).arn
    service.cloud.client("stepfunctions").stop_execution(executionArn=arn, error="Operator", cause="maintenance")
