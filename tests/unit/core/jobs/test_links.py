"""Tokens of links to jobs (core.jobs.links)."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core import ids
from core.errors import Forbidden
from core.jobs import Job, links
from core.jobs.links import HOUR_SECONDS, REFUSED, Token, check_token, make_key, make_token, read_token
from tests.unit.examples import NOW, job

HOURS = 48
JOB = job(link_key=make_key())
TOKEN = make_token(JOB, now=NOW, hours=HOURS)
CHARACTERS = string.ascii_letters + string.digits + "-_."
moments = st.floats(0, 4e9)


def opens(text: str, subject: Job = JOB, *, now: float = NOW) -> bool:
    """Whether the token opens the job. A refusal must have the one message for all refusals."""
    try:
        check_token(read_token(text), subject, now=now)
    except Forbidden as error:
        if str(error) != REFUSED:
            raise
        return False
    return True


@given(moments, st.integers(1, 2160), st.floats(0, 1))
def test_valid_token(now: float, hours: int, part: float) -> None:
    """A token contains its job's id and is valid for its hours."""
    text = make_token(JOB, now=now, hours=hours)
    assert read_token(text).job_id == JOB.job_id
    assert opens(text, now=now + part * hours * HOUR_SECONDS)


@given(moments, st.integers(1, 2160), st.floats(0, 1e9))
def test_expiry(now: float, hours: int, later: float) -> None:
    """A token is valid for less than an hour more than requested."""
    text = make_token(JOB, now=now, hours=hours)
    end = read_token(text).expires_at
    assert now + hours * HOUR_SECONDS < end <= now + (hours + 1) * HOUR_SECONDS
    assert opens(text, now=end - 0.001)
    assert not opens(text, now=end + later)


def test_links_change_hourly() -> None:
    """Tokens that are made within the same hour are equal."""
    hour = NOW // HOUR_SECONDS * HOUR_SECONDS
    first, last, after = (make_token(JOB, now=hour + seconds, hours=HOURS) for seconds in (0, 3599.9, 3600))
    assert first == last != after


@pytest.mark.parametrize("place", range(len(TOKEN)))
def test_changed_characters(place: int) -> None:
    """A token with one character changed, removed or inserted is invalid."""
    for character in set(CHARACTERS) - {TOKEN[place]}:
        assert not opens(TOKEN[:place] + character + TOKEN[place + 1 :])
    for character in CHARACTERS:
        longer = TOKEN[:place] + character + TOKEN[place:]
        assert not opens(longer)
    assert not opens(TOKEN[:place] + TOKEN[place + 1 :])
    assert opens(TOKEN)


@pytest.mark.parametrize("extra", ["\n", " ", ".", "=", "\0", "A"])
def test_extra_characters(extra: str) -> None:
    """A token with a character before or after it is invalid."""
    assert not opens(TOKEN + extra)
    assert not opens(extra + TOKEN)


def test_another_job() -> None:
    """A token is invalid for other jobs, even with the same key."""
    other = job(link_key=make_key())
    assert not opens(TOKEN, other)
    assert not opens(TOKEN, replace(other, link_key=JOB.link_key))
    assert not opens(TOKEN.replace(ids.ulid_of(JOB.job_id), ids.ulid_of(other.job_id)), other)
    assert not opens(TOKEN, replace(JOB, link_key=make_key()))


def test_epoch_0_signs_as_before() -> None:
    """Links that are out hold: this token was made by the version without epochs."""
    made = job(job_id="job_01JDX0000000000000000000AA", link_key="k" * 32)
    text = "01JDX0000000000000000000AA.1796173200.h_coCECJ1nBWJWU0WfnfIH6MfiAygVUu"
    assert make_token(made, now=NOW, hours=HOURS) == text
    assert opens(text, made)


@given(st.integers(-1, 10**6), st.integers(-1, 10**6))
def test_epochs(made_in: int, present: int) -> None:
    """A token is valid in the epoch that it was made in, and in no other."""
    text = make_token(JOB, now=NOW, hours=HOURS, epoch=made_in)
    if made_in == present:
        check_token(read_token(text), JOB, now=NOW, epoch=present)
    else:
        with pytest.raises(Forbidden):
            check_token(read_token(text), JOB, now=NOW, epoch=present)


def test_replaced_key() -> None:
    """A job with another key refuses the tokens from before, and is otherwise unchanged."""
    changed = links.replace_key(JOB, "").job
    assert not opens(TOKEN, changed)
    assert opens(make_token(changed, now=NOW, hours=HOURS), changed)
    assert replace(changed, link_key=JOB.link_key) == JOB
    assert links.key_fingerprint(changed) != links.key_fingerprint(JOB)


def test_job_without_key() -> None:
    """A job without a key has no valid token, not even one signed with the empty key."""
    keyless = replace(JOB, link_key="")
    assert not opens(make_token(keyless, now=NOW, hours=HOURS), keyless)


@given(st.text() | st.text(CHARACTERS) | st.from_regex(links._TOKEN, fullmatch=True))
def test_any_text(text: str) -> None:
    """Any text that is not the token is refused with the same message."""
    assume(text != TOKEN)
    assert not opens(text)


@given(st.text(), st.integers(), st.text())
def test_any_token(job_id: str, expires_at: int, signature: str) -> None:
    """Any parsed token with another content is refused with the same message."""
    if signature.isascii():
        with pytest.raises(Forbidden, match="is invalid or has expired"):
            check_token(Token(job_id, expires_at, signature), JOB, now=NOW)


@pytest.mark.parametrize("digits", ["٣" * 10, "１２３", "0", "01796169600", "1" * 13])
def test_form_of_expiry(digits: str) -> None:
    """The expiry has ASCII digits without leading zeros, so a token has exactly one form."""
    ulid, _, signature = TOKEN.split(".")
    with pytest.raises(Forbidden):
        read_token(f"{ulid}.{digits}.{signature}")


def test_keys() -> None:
    """A key is made from 24 random bytes."""
    keys = {make_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}


def test_characters_of_token() -> None:
    """A token needs no encoding in a path, and does not contain the key."""
    ulid, end, signature = TOKEN.split(".")
    assert set(TOKEN) <= set(CHARACTERS)
    assert (f"job_{ulid}", len(signature)) == (JOB.job_id, 32)
    assert int(end) % HOUR_SECONDS == 0
    assert JOB.link_key not in TOKEN
