"""The keys of the jobs table, for every store that uses it.

    item                          pk                      sk
    event of a job                JOB#{job_id}            EVENT#{sequence in 6 digits}
    offset of a job's subscribers JOB#{job_id}            LIVE
    subscription to a job         JOB#{job_id}            LIVE#{connection_id}
    job, or its tombstone         JOB#{job_id}            META
    progress of a job             JOB#{job_id}            PROGRESS
    usage of models of a job      JOB#{job_id}            USAGE
    last webhook of a job         JOB#{job_id}            WEBHOOK
    step of a job                 STEPS#{job_id}          STEP#{number in 6 digits}
    call of a model in flight     OWNER#{owner}           CALL#{place in 4 digits}
    document                      OWNER#{owner}           DOC#{document_id}
    durations of a kind of job    OWNER#{owner}           DURATIONS#{kind}
    webhook endpoint              OWNER#{owner}           ENDPOINT#{endpoint_id}
    deleted endpoint              OWNER#{owner}           FORMER-ENDPOINT#{endpoint_id}
    event of an owner             OWNER#{owner}           EVENT#{event_id}
    only open job of its subject  OWNER#{owner}           EXCLUSIVE#{kind}#{sha256}
    follower of a kind            OWNER#{owner}           FOLLOW#{kind}#{connection_id}
    request that is held open     OWNER#{owner}           HOLD#{job_id or endpoint_id}#{hold_id}
    open job                      OWNER#{owner}           OPEN#{job_id}
    job on a state machine        OWNER#{owner}           RUNNING#{job_id}
    turn of a session             OWNER#{owner}           TURN#{sha256}#{job_id}
    use of a daily quota          OWNER#{owner}           USED#{date}#{quota}
    idempotency key               IDEM#{owner}#{sha256}   IDEM
    WebSocket connection          LIVE#{connection_id}    CONNECTION
    rate limit of a model         MODEL#{name}            RATE
    owners that wait for a model  MODEL#{name}            WAITING
    circuit of a provider         PROVIDER#{name}         CIRCUIT
    WebSocket ticket              TICKET#{sha256}         TICKET

    index    item                     pk                      sk
    gsi1     job                      OWNER#{owner}           {job_id}
    gsi1     subscription to a job    LIVE#{connection_id}    JOB#{job_id}
    gsi1     follower of a kind       LIVE#{connection_id}    FOLLOW#{kind}
    gsi2     open job                 ACTIVE#{shard}          {deadline}
    gsi2     tombstone with work left DELETED                 {time of the next run}
    gsi2     WebSocket connection     LIVE                    {connected_at}

- META, PROGRESS, USAGE and WEBHOOK sort after EVENT# and LIVE, so one query with sk >= META reads a job, its
  progress, its usage of models and its webhook, and none of its events.
- Steps have a partition of their own, since STEP# would sort after META: every poll would read them.
- A sequence has leading zeros, and job ids and event ids are ULIDs, so events and jobs sort by time.
- A deleted job leaves a tombstone until its expiry, so that late messages about it are dropped (`tombstones`).
- Both indexes are sparse. gsi1 lists an owner's jobs, and the items to delete with a connection. gsi2 lists open
  jobs and connections: a job that ends loses its gsi2 key.
- OPEN, RUNNING, HOLD and CALL items are counted by a query. There is no counter that many writers update, and
  none that stays too high: OPEN and RUNNING are deleted in the transaction that ends the job, others expire.
- Clients choose idempotency keys and receive tickets, so only the SHA-256 of either is stored.
- `expires_at` (epoch seconds) is the TTL attribute. DynamoDB deletes an expired item up to some days later, so
  stores ignore expired items:
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html
"""

from __future__ import annotations

import hashlib

Key = dict[str, str]

MAX_SEQUENCE = 999_999
"""The highest sequence of six digits. Events after it would not sort by sequence."""
ACTIVE_SHARDS = 8
"""An index partition takes 1,000 writes a second, so open jobs are spread over several."""
EVENT_PREFIX, END_OF_EVENTS = "EVENT#", "EVENT#~"
STEP_PREFIX, END_OF_STEPS = "STEP#", "STEP#~"
DOCUMENT_PREFIX, ENDPOINT_PREFIX = "DOC#", "ENDPOINT#"
OPEN_PREFIX, RUNNING_PREFIX, HOLD_PREFIX, CALL_PREFIX = "OPEN#", "RUNNING#", "HOLD#", "CALL#"
FORMER_ENDPOINT_PREFIX = "FORMER-ENDPOINT#"
META = "META"
SUBSCRIBERS = "LIVE"
"""The sk of the offset, and the prefix of subscriptions: one query reads both."""
LIVE_CONNECTIONS = "LIVE"
"""The gsi2pk of connections."""
TOMBSTONES = "DELETED"
"""The gsi2pk of tombstones."""
_JOB, _CONNECTION = "JOB#", "LIVE#"


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


def job_pk(job_id: str) -> str:
    return f"{_JOB}{job_id}"


def job_id_of(pk: str) -> str:
    """The job id in a pk that `job_pk` returned."""
    return pk.removeprefix(_JOB)


def job_key(job_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": META}


def job_gsi1(owner: str, job_id: str) -> Key:
    return {"gsi1pk": owner_pk(owner), "gsi1sk": job_id}


def open_job_gsi2(job_id: str, deadline: str) -> Key:
    shard = int(_sha256(job_id), 16) % ACTIVE_SHARDS
    return {"gsi2pk": open_jobs_gsi2pk(shard), "gsi2sk": deadline}


def open_jobs_gsi2pk(shard: int) -> str:
    return f"ACTIVE#{shard}"


def tombstone_gsi2(next_run: str) -> Key:
    return {"gsi2pk": TOMBSTONES, "gsi2sk": next_run}


def event_sk(sequence: int) -> str:
    return f"{EVENT_PREFIX}{sequence:06d}"


def event_key(job_id: str, sequence: int) -> Key:
    return {"pk": job_pk(job_id), "sk": event_sk(sequence)}


def progress_key(job_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": "PROGRESS"}


def usage_key(job_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": "USAGE"}


def webhook_key(job_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": "WEBHOOK"}


def steps_pk(job_id: str) -> str:
    return f"STEPS#{job_id}"


def step_sk(number: int) -> str:
    return f"{STEP_PREFIX}{number:06d}"


def step_key(job_id: str, number: int) -> Key:
    return {"pk": steps_pk(job_id), "sk": step_sk(number)}


# ── owners ───────────────────────────────────────────────────────────────────────────────────────────────


def owner_pk(owner: str) -> str:
    """The pk of an owner's items in the table, and of an owner's jobs in gsi1."""
    return f"OWNER#{owner}"


def document_key(owner: str, document_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{DOCUMENT_PREFIX}{document_id}"}


def durations_key(owner: str, kind: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"DURATIONS#{kind}"}


def endpoint_key(owner: str, endpoint_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{ENDPOINT_PREFIX}{endpoint_id}"}


def former_endpoint_key(owner: str, endpoint_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{FORMER_ENDPOINT_PREFIX}{endpoint_id}"}


def owner_event_key(owner: str, event_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{EVENT_PREFIX}{event_id}"}


def open_job_key(owner: str, job_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{OPEN_PREFIX}{job_id}"}


def running_job_key(owner: str, job_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{RUNNING_PREFIX}{job_id}"}


def exclusive_key(owner: str, kind: str, subject: str) -> Key:
    """A subject may be as long as a sort key, so only its SHA-256 is part of the key."""
    return {"pk": owner_pk(owner), "sk": f"EXCLUSIVE#{kind}#{_sha256(subject)}"}


def hold_key(owner: str, subject: str, hold_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{HOLD_PREFIX}{subject}#{hold_id}"}


def model_call_key(owner: str, place: int) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{CALL_PREFIX}{place:04d}"}


def daily_use_key(owner: str, date: str, quota: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"USED#{date}#{quota}"}


def turn_prefix(session: str) -> str:
    """Owners choose the names of sessions, of any length."""
    return f"TURN#{_sha256(session)}#"


def turn_key(owner: str, session: str, job_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{turn_prefix(session)}{job_id}"}


def idempotency_key(owner: str, key: str) -> Key:
    return {"pk": f"IDEM#{owner}#{_sha256(key)}", "sk": "IDEM"}


# ── language models ──────────────────────────────────────────────────────────────────────────────────────


def rate_limit_key(model: str) -> Key:
    return {"pk": f"MODEL#{model}", "sk": "RATE"}


def waiting_owners_key(model: str) -> Key:
    return {"pk": f"MODEL#{model}", "sk": "WAITING"}


def circuit_key(provider: str) -> Key:
    return {"pk": f"PROVIDER#{provider}", "sk": "CIRCUIT"}


# ── WebSockets ───────────────────────────────────────────────────────────────────────────────────────────


def ticket_key(ticket: str) -> Key:
    return {"pk": f"TICKET#{_sha256(ticket)}", "sk": "TICKET"}


def connection_pk(connection_id: str) -> str:
    """The pk of a connection in the table, and of its subscriptions in gsi1."""
    return f"{_CONNECTION}{connection_id}"


def connection_id_of(key: str) -> str:
    """The connection id in the pk of a connection, or in the sk of a subscription."""
    return key.removeprefix(_CONNECTION)


def connection_key(connection_id: str) -> Key:
    return {"pk": connection_pk(connection_id), "sk": "CONNECTION"}


def connection_gsi2(connected_at: str) -> Key:
    return {"gsi2pk": LIVE_CONNECTIONS, "gsi2sk": connected_at}


def subscribers_key(job_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": SUBSCRIBERS}


def subscription_key(job_id: str, connection_id: str) -> Key:
    return {"pk": job_pk(job_id), "sk": f"{SUBSCRIBERS}#{connection_id}"}


def subscription_gsi1(connection_id: str, job_id: str) -> Key:
    return {"gsi1pk": connection_pk(connection_id), "gsi1sk": job_pk(job_id)}


def follower_prefix(kind: str) -> str:
    return f"FOLLOW#{kind}#"


def follower_key(owner: str, kind: str, connection_id: str) -> Key:
    return {"pk": owner_pk(owner), "sk": f"{follower_prefix(kind)}{connection_id}"}


def follower_gsi1(connection_id: str, kind: str) -> Key:
    return {"gsi1pk": connection_pk(connection_id), "gsi1sk": f"FOLLOW#{kind}"}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
