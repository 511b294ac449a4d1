"""core.webhooks.endpoints.headers"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.endpoints.headers import check_headers
from core.webhooks.transport.signing import make_secret, sign

TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def refused(name: str, value: str = "v") -> str:
    with pytest.raises(ValueError, match=r"^header ") as caught:
        check_headers({name: value})
    return str(caught.value)


def test_lower_case_in_order() -> None:
    """Names are returned in lower case and in the given order, values unchanged."""
    given_headers = {"Authorization": "Bearer a b\tc", "X-Tenant": "!", "traceparent": "00-0af7"}
    assert list(check_headers(given_headers).items()) == [
        ("authorization", "Bearer a b\tc"),
        ("x-tenant", "!"),
        ("traceparent", "00-0af7"),
    ]
    assert check_headers({}) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("host", "content-length", "content-type", "content-encoding", "content-range", "transfer-encoding"),
        *(
            "connection",
            "keep-alive",
            "upgrade",
            "te",
            "trailer",
            "expect",
            "http2-settings",
            "date",
            "user-agent",
        ),
        *("accept-encoding", "cookie", "proxy-authorization", "proxy-connection", "proxy-"),
        *("x-amz-date", "x-amzn-trace-id", "x-aws-ec2-metadata-token", "x-google-metadata-request"),
        *("metadata", "metadata-flavor", "x-forwarded-for", "x-forwarded-host", "forwarded", "via", "x-real-ip"),
        *("x-signature", "x-signature-previous", "x-signature-256", "signature", "signature-input", "digest"),
        *("content-digest", "repr-digest", "webhook-id", "webhook-timestamp", "webhook-signature", "webhook-x"),
        *("svix-id", "svix-signature", "recado-delivery", "recado-attempt", "recado-x"),
        *("true-client-ip", "client-ip", "x-client-ip", "x-cluster-client-ip", "cf-connecting-ip"),
        *("fly-client-ip", "fastly-client-ip", "x-appengine-user-ip", "x-azure-clientip", "x-envoy-original-path"),
        *("x-remote-user", "remote-user", "x-original-url", "x-original-host", "x-rewrite-url", "x-host"),
        *("x-forward-for", "x-http-method", "x-http-method-override", "x-method-override", "x-scheme"),
        "x-apigw-api-id",
    ],
)
def test_refused_names(name: str) -> None:
    """Headers for framing, signatures and routing are refused with a reason, in any case and with _ or . for -."""
    reasons = {
        refused(form).partition(": ")[2]
        for form in (name, name.upper(), name.title(), name.replace("-", "_"), name.replace("-", "."))
    }
    assert len(reasons) == 1
    assert reasons != {""}


def test_every_header_of_ours_is_refused() -> None:
    """An endpoint cannot set any of the headers that the sender sets."""
    ours = sign([make_secret(), make_secret()], event_id="evt_1", timestamp=1, body=b"")
    assert len(ours) >= 4
    for name in (*ours, "content-type", "user-agent"):
        assert f"header {name}: it " in refused(name)


@pytest.mark.parametrize(
    "name",
    ["authorization", "x-api-key", "x-hook", "hosts", "dates", "webhook", "x-amzonia", "accept", "x-sign", "te2"],
)
def test_names_that_only_look_alike(name: str) -> None:
    """Names that are similar to refused ones are accepted."""
    assert check_headers({name: "v"}) == {name: "v"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a:",
        ":path",
        "a\r\nb",
        "a\n",
        "\na",
        "a\x00",
        "é",
        "a(b)",
        "a/b",
        "a@b",
        "a,b",
        '"a"',
        "\ud800",
    ],
)
def test_malformed_names(name: str) -> None:
    """A name that is not an RFC 9110 token is refused, and quoted in ASCII."""
    message = refused(name)
    assert "a name is one or more of" in message
    assert message.isascii()
    assert "\n" not in message


@pytest.mark.parametrize(
    ("value", "message_part"),
    [
        *(
            (text, "visible ASCII")
            for text in (" a", "a ", "\ta", "a\t", " ", "\t", "a\rb", "a\nb", "a\r\nx: y", "a\n")
        ),
        *(
            (text, "visible ASCII")
            for text in ("a\x00b", "a\x0bb", "a\x7f", "a\x1b", "é", "a\u2028b", "\ud800", "\xa0a")
        ),
        *((("", "1 to 1024")), ("a" * 1025, "not 1025")),
    ],
)
def test_malformed_values(value: str, message_part: str) -> None:
    """A value that is ambiguous or can end the header is refused, without the value, which can be a secret."""
    message = refused("x-key", value)
    assert message.startswith("header x-key: a value")
    assert message_part in message
    assert refused("x-key", "s3cret\n").find("s3cret") == -1


@pytest.mark.parametrize(("first", "second"), [("X-Key", "x-key"), ("x-key", "x_key"), ("x.key", "X_Key")])
def test_indistinguishable_names(first: str, second: str) -> None:
    """Two names that differ in case, or that CGI receivers cannot distinguish, are refused."""
    with pytest.raises(ValueError, match=f"header {second}: .* from {first}"):
        check_headers({first: "1", second: "2"})


def test_number_of_headers() -> None:
    """20 headers are accepted, 21 are not."""
    headers = {f"x-{n}": "v" for n in range(20)}
    assert check_headers(headers) == headers
    with pytest.raises(ValueError, match="21 headers are too many; the limit is 20"):
        check_headers(headers | {"x-20": "v"})


def test_size_of_all() -> None:
    """4,000 bytes of JSON are accepted, 4,001 are not."""
    longest = {f"x-{n}": "v" * 1024 for n in range(3)}
    room = 4000 - len(json.dumps(longest | {"x-last": ""}))
    full = longest | {"x-last": '"' * (room // 2) + "v" * (room % 2)}
    assert len(json.dumps(check_headers(full))) == 4000
    with pytest.raises(ValueError, match="4001 bytes as JSON; the limit is 4000"):
        check_headers(full | {"x-last": full["x-last"] + "v"})


any_name = st.text(max_size=12) | st.text(TOKEN, min_size=1, max_size=12) | st.sampled_from(["Host", "webhook_id"])
any_value = st.text(max_size=20) | st.text(" \t!~az", max_size=20) | st.sampled_from(["a" * 1024])


@given(st.dictionaries(any_name, any_value, max_size=22))
def test_accepted_headers_are_safe(mapping: dict[str, str]) -> None:
    """Any headers are refused, or have no line breaks and are small enough for KMS."""
    try:
        headers = check_headers(mapping)
    except ValueError:
        return
    assert len(headers) == len(mapping) <= 20
    assert len(json.dumps(headers)) <= 4000
    for name, value in headers.items():
        assert name == name.lower()
        assert name
        assert set(name) <= set(TOKEN)
        assert value == value.strip()
        assert value
        assert all(" " <= char <= "~" or char == "\t" for char in value)
        assert not name.replace("_", "-").startswith(
            ("webhook-", "svix-", "x-signature", "x-forwarded-", "proxy-")
        )
    assert check_headers(headers) == headers


@given(
    name=st.text(TOKEN, min_size=1, max_size=40),
    value=st.from_regex(r"[!-~]([\t -~]{0,200}[!-~])?", fullmatch=True),
)
def test_other_headers_are_accepted(name: str, value: str) -> None:
    """Any token with a valid value is accepted if the name is not refused."""
    assert check_headers({f"x-own{name}": value}) == {f"x-own{name}".lower(): value}
