"""The batches that the worker gets (kinds.embedding.batches)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.aws.blobs import Blobs
from core.errors import ContextOverflow, ModelRejected, RecadoError, Throttled, Unavailable
from core.jobs import Job, JobStore, begin
from kinds.embedding.batches import MAX_FAILED_IN_A_ROW, embed
from kinds.embedding.files import Outcome, read_outcome, write_plan
from kinds.embedding.kind import EMBEDDING
from kinds.embedding.lines import LineError, Lines
from tests.unit.kinds.embedding.model import EXECUTION, FakeEmbedder, submitted

TEXTS = ["a", "bb", "ccc", "dddd", "eeeee"]


@pytest.fixture
def subject(store: JobStore, blobs: Blobs, model: FakeEmbedder) -> Job:
    """A job with one batch of five texts, and an empty one."""
    drafted = submitted(store, blobs, b"")
    write_plan(blobs, drafted.job_id, Lines(texts=TEXTS), [5, 0])
    return store.apply(drafted.job_id, begin(EMBEDDING, stage="embed", lease=EXECUTION))


def send(subject: Job, batch: int = 0) -> None:
    assert EMBEDDING.on_batch is not None
    EMBEDDING.on_batch(subject, {"batch": batch, "batches": 2}, lambda: 300.0)


def outcome(blobs: Blobs, subject: Job) -> Outcome:
    return read_outcome(blobs, subject.job_id, 0, dimensions=2)


def test_batch(subject: Job, store: JobStore, blobs: Blobs, model: FakeEmbedder) -> None:
    """All texts get vectors, progress counts the batch, and the job's usage counts calls, tokens and cost."""
    send(subject)
    assert [list(vector) for vector in outcome(blobs, subject).vectors] == [[len(text), 0] for text in TEXTS]
    assert store.snapshot(subject.job_id).progress == (1, 2)
    usage = store.snapshot(subject.job_id).usage or {}
    assert (usage["calls"], usage["input_tokens"], usage["nano_usd"]) == (5, 15, 300)


def test_again(subject: Job, store: JobStore, model: FakeEmbedder) -> None:
    """A message that comes again pays nothing and changes nothing."""
    send(subject)
    usage = store.snapshot(subject.job_id).usage
    send(subject)
    assert set(model.paid.values()) == {1}
    assert store.snapshot(subject.job_id).usage == usage


def test_no_texts(subject: Job, store: JobStore, model: FakeEmbedder) -> None:
    """A batch without texts is done at once."""
    send(subject, 1)
    assert store.snapshot(subject.job_id).progress == (1, 2)
    assert not model.paid


@pytest.mark.parametrize("error", [Throttled("busy"), KeyboardInterrupt(), ValueError("no")])
def test_interrupted(subject: Job, blobs: Blobs, model: FakeEmbedder, error: BaseException) -> None:
    """Vectors before any interruption are stored, and not paid for again."""
    model.errors = {"ccc": [error]}
    with pytest.raises(type(error)):
        send(subject)
    assert outcome(blobs, subject).done == 2
    send(subject)
    assert (outcome(blobs, subject).done, outcome(blobs, subject).input_tokens) == (5, 15)
    assert set(model.paid.values()) == {1}


@pytest.mark.parametrize(
    ("error", "code"), [(ContextOverflow("long"), "too_long"), (ModelRejected("no"), "model_rejected")]
)
def test_refused(subject: Job, blobs: Blobs, model: FakeEmbedder, error: RecadoError, code: str) -> None:
    """A text that the model refuses is an error, and the others get their vectors."""
    model.errors = {"bb": [error]}
    send(subject)
    found = outcome(blobs, subject)
    assert found.errors == {1: LineError(code, str(error))}
    assert [vector[0] for vector in found.vectors] == [1, 3, 4, 5]


@pytest.mark.parametrize("failing", [["a"], ["ccc", "dddd"], ["eeeee"], ["a", "ccc", "eeeee"]])
def test_model_fails_for_some(subject: Job, blobs: Blobs, model: FakeEmbedder, failing: list[str]) -> None:
    """Texts for which the model fails are errors, if it answers for others of the batch."""
    model.errors = {text: [Unavailable("It failed.")] for text in failing}
    send(subject)
    found = outcome(blobs, subject)
    assert {TEXTS[place] for place in found.errors} == set(failing)
    assert {error.code for error in found.errors.values()} == {"model_failed"}


def test_model_fails_for_all(subject: Job, blobs: Blobs, model: FakeEmbedder) -> None:
    """If the model fails for three texts in a row, the message is tried again, and no line is blamed."""
    model.errors = {text: [Unavailable("It failed.")] for text in TEXTS[1:4]}
    with pytest.raises(Unavailable):
        send(subject)
    assert (outcome(blobs, subject).done, outcome(blobs, subject).errors) == (1, {})
    assert model.errors["dddd"] == []
    send(subject)
    assert (outcome(blobs, subject).done, outcome(blobs, subject).errors) == (5, {})


def test_model_fails_for_the_only_text(model: FakeEmbedder) -> None:
    """A single text is not blamed either."""
    model.errors, found = {"a": [Unavailable("It failed.")]}, Outcome()
    with pytest.raises(Unavailable):
        embed(["a"], found, model, seconds_left=lambda: 300.0)
    assert found.done == 0


FAULTS = st.sampled_from([Throttled("busy"), Unavailable("down"), ModelRejected("no"), ContextOverflow("long")])


@given(st.lists(st.lists(FAULTS, max_size=3), min_size=1, max_size=8))
def test_any_faults(faults: list[list[BaseException]]) -> None:
    """Whatever fails when, every text comes to a vector or an error, once, and no vector is paid for twice."""
    texts = [f"text {n}" for n in range(len(faults))]
    model, found = FakeEmbedder(), Outcome()
    model.errors = dict(zip(texts, map(list, faults), strict=True))
    for _ in range(4 * len(texts) + MAX_FAILED_IN_A_ROW):
        try:
            embed(texts, found, model, seconds_left=lambda: 300.0)
        except (Throttled, Unavailable):
            found = Outcome.load(found.dump(), 2)
    assert found.done == len(texts)
    wrong = {texts[place] for place in found.errors}
    assert wrong.isdisjoint(model.paid)
    assert [*model.paid] == [text for text in texts if text not in wrong]
    assert set(model.paid.values()) <= {1}
