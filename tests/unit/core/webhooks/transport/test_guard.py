"""core.webhooks.transport.guard and core.webhooks.transport.addresses"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from urllib.parse import urlsplit

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Refused
from core.webhooks.transport.addresses import Access, Address, Network, classify
from core.webhooks.transport.guard import Policy, Target, check_address, check_url

STRICT = Policy()
PLAIN = Policy(allow_http=True)
EVERYTHING = Policy(allow_http=True, allow_private_cidrs=(ip_network("0.0.0.0/0"), ip_network("::/0")))
LOOPBACK = Policy(allow_http=True, allow_private_cidrs=(ip_network("127.0.0.0/8"), ip_network("::1/128")))

PRIVATE = [
    *("10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.19.255.255"),
    *("198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.254"),
    *("::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "fc00::1", "fdff::1", "fec0::1"),
]
NEVER = [
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.1"),
    *("168.63.129.16", "192.0.0.192", "100.100.100.200", "192.88.99.1", "224.0.0.1", "239.255.255.255"),
    *("255.255.255.255", "::", "fe80::1", "febf::1", "ff02::1", "fd00:ec2::254", "fd00:ec2::23"),
    *("fd20:ce::254", "fd00:c1::a9fe:a9fe", "100::1", "5f00::1", "4000::1", "2001:10::1", "2001:20::1"),
    # IPv4 in disguise: mapped, compatible, translated, NAT64, 6to4, Teredo
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::ffff:100.100.100.200"),
    *("0000:0000:0000:0000:0000:ffff:7f00:0001", "::ffff:8.8.8.8", "::169.254.169.254", "::8.8.8.8", "::2"),
    *("::ffff:0:169.254.169.254", "::ffff:0:7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8"),
    *("2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:a9fe:a9fe", "fd00::5efe:10.0.0.1", "fd00:42::42"),
    *("64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2002:7f00:1::", "2001::1", "2001:0:a9fe:a9fe::1"),
]
PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0"),
    *("192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15"),
    *("2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::1", "3ffe::1"),
]


def target(host: str = "hooks.example.com", port: int = 443) -> Target:
    return Target(scheme="https", host=host, port=port, path="/", address=None)


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def refusal(url: str, policy: Policy = PLAIN) -> str:
    with pytest.raises(Refused) as refused:
        check_url(url, policy)
    assert refused.value.error_class == "blocked"
    return str(refused.value)


# Addresses


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    """Global unicast addresses are allowed, up to the edges of the refused ranges."""
    check_address(ip_address(address), target(), STRICT)
    assert check_url(f"https://{bracketed(address)}/", STRICT).address == ip_address(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    """Private, loopback, shared and reserved ranges are refused, and the message names the setting."""
    with pytest.raises(Refused, match="`allow_private_cidrs`"):
        check_address(ip_address(address), target(), STRICT)
    assert "`allow_private_cidrs`" in refusal(f"https://{bracketed(address)}/")


@pytest.mark.parametrize("address", PRIVATE)
def test_allowed_private_addresses(address: str) -> None:
    """An address in allow_private_cidrs is allowed at any port; others are not."""
    own, other = ip_network(address), ip_network("10.1.2.3/32")
    check_address(ip_address(address), target(port=9000), Policy(allow_private_cidrs=(other, own)))
    with pytest.raises(Refused):
        check_address(ip_address(address), target(), Policy(allow_private_cidrs=(other,)))


@pytest.mark.parametrize("address", NEVER)
def test_addresses_that_no_setting_allows(address: str) -> None:
    """Metadata, credentials, link-local, multicast and embedded IPv4 addresses are always refused."""
    for policy in (STRICT, EVERYTHING):
        with pytest.raises(Refused, match="never sent there"):
            check_address(ip_address(address), target(), policy)
        assert "never sent there" in refusal(f"https://{bracketed(address)}/", EVERYTHING)


addresses = st.ip_addresses() | st.ip_addresses(v=6, network="2000::/3") | st.ip_addresses(network="192.0.0.0/8")


@given(address=addresses)
def test_never_laxer_than_the_standard_library(address: Address) -> None:
    """An address that this Python's `ipaddress` does not call global is not public in our table."""
    if classify(address)[1] is Access.PUBLIC:
        assert address.is_global
        assert not address.is_multicast


@given(
    address=st.ip_addresses(v=4),
    prefix=st.sampled_from(["::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::"]),
)
def test_embedded_ipv4(address: IPv4Address, prefix: str) -> None:
    """An IPv4 address in an IPv6 prefix that routes to it is refused, public ones included."""
    disguised = IPv6Address(int(IPv6Address(prefix)) | int(address))
    what, access = classify(disguised)
    assert (access is Access.NEVER and "IPv4 inside IPv6" in what) or disguised == IPv6Address("::1")


@given(address=st.ip_addresses(v=4), prefix=st.integers(0, 2**64 - 1), flag=st.sampled_from([0, 0x0200]))
def test_isatap(address: IPv4Address, prefix: int, flag: int) -> None:
    """An interface identifier with an IPv4 address is refused with every prefix."""
    disguised = IPv6Address(prefix << 64 | flag << 48 | 0x5EFE << 32 | int(address))
    assert classify(disguised) == ("IPv4 inside IPv6 (ISATAP)", Access.NEVER)


@given(address=st.ip_addresses(v=4), rest=st.integers(0, 2**80 - 1))
def test_6to4(address: IPv4Address, rest: int) -> None:
    """Every 6to4 address is refused, whichever IPv4 address it contains."""
    assert classify(IPv6Address((0x2002 << 112) | (int(address) << 80) | rest))[1] is Access.NEVER


@pytest.mark.parametrize(
    ("forbidden", "address", "closed"),
    [
        (("127.0.0.1", 9001), "127.0.0.1", True),
        (("127.0.0.1", 9001), "127.0.0.2", True),
        (("127.0.0.1", 9001), "::1", True),
        (("::1", 9001), "127.0.0.1", True),
        (("localhost", 9001), "127.0.0.1", True),
        (("10.0.0.1", 9001), "10.0.0.1", True),
        (("hooks.example.com", 9001), "10.0.0.2", True),
        (("localhost", 9001), "::1", True),
        (("elsewhere", 9001), "127.0.0.1", True),
        (("elsewhere", 9001), "10.0.0.2", True),
        (("elsewhere", 9001), "8.8.8.8", False),
        (("0.0.0.0", 9001), "10.0.0.2", True),
        (("::", 9001), "127.0.0.1", True),
        (("127.0.0.1", 9002), "127.0.0.1", False),
        (("10.0.0.1", 9001), "10.0.0.2", False),
    ],
)
def test_forbidden_hosts_and_ports(forbidden: tuple[str, int], address: str, closed: bool) -> None:
    """A forbidden host and port is refused in an allowed range, for all loopback addresses."""
    policy = Policy(allow_private_cidrs=EVERYTHING.allow_private_cidrs, forbidden=frozenset({forbidden}))
    if closed:
        with pytest.raises(Refused, match="part of this service"):
            check_address(ip_address(address), target(port=9001), policy)
    else:
        check_address(ip_address(address), target(port=9001), policy)


@pytest.mark.parametrize(
    ("runtime_api", "credentials_uri", "forbidden"),
    [
        ("", "", set()),
        ("127.0.0.1:9001", "", {("127.0.0.1", 9001)}),
        ("169.254.100.1:9001", "", {("169.254.100.1", 9001)}),
        ("[::1]:9001", "", {("::1", 9001)}),
        ("Localhost", "", {("localhost", 80)}),
        ("127.0.0.1:9001", "http://127.0.0.1:9001/2026/credentials", {("127.0.0.1", 9001)}),
        ("127.0.0.1:9001", "http://127.0.0.2:7/c?x=1", {("127.0.0.1", 9001), ("127.0.0.2", 7)}),
        ("", "https://creds.example/c", {("creds.example", 443)}),
    ],
)
def test_own_apis(runtime_api: str, credentials_uri: str, forbidden: set[tuple[str, int]]) -> None:
    """The function's own APIs are read from its environment in all their forms."""
    policy = Policy.of(
        allow_http=True, allow_private_cidrs=(), runtime_api=runtime_api, credentials_uri=credentials_uri
    )
    assert policy.forbidden == forbidden


networks = st.builds(
    lambda address, bits: ip_interface((address, bits % (address.max_prefixlen + 1))).network,
    st.ip_addresses() | st.sampled_from([*map(ip_address, NEVER), ip_address("127.0.0.1")]),
    st.integers(0, 128),
)


@given(
    cidrs=st.lists(networks | st.sampled_from(EVERYTHING.allow_private_cidrs), max_size=5),
    address=st.sampled_from(
        ["169.254.170.2", "169.254.170.23", "169.254.169.254", "fd00:ec2::23", "fd00:ec2::254"]
    )
    | st.ip_addresses(network="169.254.0.0/16").map(str)
    | st.sampled_from(NEVER),
    port=st.integers(1, 65535),
)
def test_no_setting_allows_them(cidrs: list[Network], address: str, port: int) -> None:
    """With any `allow_private_cidrs`, addresses of credentials and metadata are refused at every port."""
    policy = Policy.of(allow_http=True, allow_private_cidrs=map(str, cidrs))
    with pytest.raises(Refused, match="never sent there"):
        check_address(ip_address(address), target(port=port), policy)
    assert "never sent there" in refusal(f"http://{bracketed(address)}:{port}/", policy)


@given(
    cidrs=st.lists(networks | st.sampled_from(EVERYTHING.allow_private_cidrs), max_size=5),
    address=st.ip_addresses(network="127.0.0.0/8") | st.just(ip_address("::1")),
    runtime_api=st.sampled_from(
        ["127.0.0.1:9001", "[::1]:9001", "localhost:9001", "runtime:9001", "0.0.0.0:9001"]
    ),
)
def test_no_setting_allows_the_runtime(cidrs: list[Network], address: Address, runtime_api: str) -> None:
    """With any `allow_private_cidrs`, the runtime API is refused at all loopback addresses."""
    policy = Policy.of(allow_http=True, allow_private_cidrs=map(str, cidrs), runtime_api=runtime_api)
    with pytest.raises(Refused):
        check_address(address, target(port=9001), policy)
    refusal(f"http://{bracketed(str(address))}:9001/2018-06-01/runtime/invocation/next", policy)


# https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry, 2025: all that are
# not "globally reachable", those that say neither yes nor no included.
REGISTRY = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/29", "192.0.0.8/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.88.99.0/24"),
    *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32"),
    *("::1/128", "::/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23"),
    *("2001::/32", "2001:2::/48", "2001:10::/28", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16"),
    *("fc00::/7", "fe80::/10"),
]


@pytest.mark.parametrize("block", REGISTRY)
def test_registries(block: str) -> None:
    """No block of the special-purpose registries is public, from its first address to its last."""
    for address in (ip_network(block)[0], ip_network(block)[-1]):
        assert classify(address)[1] is not Access.PUBLIC


# URLs


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://hooks.example.com", "hooks.example.com", 443, "/", "hooks.example.com"),
        ("HTTPS://Hooks.Example.COM:443/A", "hooks.example.com", 443, "/A", "hooks.example.com"),
        ("http://a.example:8080?x=1", "a.example", 8080, "/?x=1", "a.example:8080"),
        ("https://a.example:80/", "a.example", 80, "/", "a.example:80"),
        ("http://a.example:443/", "a.example", 443, "/", "a.example:443"),
        ("https://r3---sn-4g5e.example/", "r3---sn-4g5e.example", 443, "/", "r3---sn-4g5e.example"),
        ("https://a.example//b/../c?u=http://x@y", "a.example", 443, "//b/../c?u=http://x@y", "a.example"),
        ("https://x.example/?sp=%2Ftriggers%2Frun", "x.example", 443, "/?sp=%2Ftriggers%2Frun", "x.example"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://faß.example/", "xn--fa-hia.example", 443, "/", "xn--fa-hia.example"),
        ("https://日本語。jp/", "xn--wgv71a119e.jp", 443, "/", "xn--wgv71a119e.jp"),
        ("https://8.8.8.8:8443/x", "8.8.8.8", 8443, "/x", "8.8.8.8:8443"),
        ("https://８.８.８.８/", "8.8.8.8", 443, "/", "8.8.8.8"),
        ("https://[2606:4700::0:1111]/", "2606:4700::1111", 443, "/", "[2606:4700::1111]"),
        ("https://[2606:4700::1111]:8443/", "2606:4700::1111", 8443, "/", "[2606:4700::1111]:8443"),
    ],
)
def test_good_urls(url: str, host: str, port: int, path: str, authority: str) -> None:
    """A URL is parsed into a canonical host, port and path. Names become IDNA 2008 ASCII."""
    found = check_url(url, PLAIN)
    assert (found.host, found.port, found.path, found.authority) == (host, port, path, authority)
    assert found.tls == url.lower().startswith("https:")


@pytest.mark.parametrize(
    "host",
    [
        *("0x7f.1", "017700000001", "2130706433", "127.1", "127.0.1", "0177.0.0.1", "0x7f000001", "0x7f.0.0.0x1"),
        *("0", "0x", "1", "4294967295", "08.8.8.8", "8.8.8.08", "8.8.8.8.8", "256.1.1.1", "example.1", "a.0x1f"),
        *("１２７.1", "0x7F.1", "①②⑦.1"),
    ],
)
def test_number_forms(host: str) -> None:
    """A host that ends in a number is four decimal numbers or refused, however resolvers read it."""
    assert "in its usual form" in refusal(f"https://{host}/", EVERYTHING)


@pytest.mark.parametrize(
    "url",
    [
        # bracketed hosts
        *("https://[::1]", "https://[::1]:9876", "https://@[::1]:9876", "https://1:2@[::1]:9876"),
        *(
            "https://[0000:0000:0000:0000:0000:ffff:7f00:0001]:9854",
            "https://[::1%25lo]",
            "https://[fe80::1%eth0]/",
            "https://[2606:4700::1111%25e0]/",
            "https://[2606:4700::1111%1]/",
        ),
        *(
            "https://[::1",
            "https://::1]",
            "https://[]/",
            "https://[::1]x/",
            "https://[v1.a]/",
            "https://[1.1.1.1]/",
        ),
        *("https://[::1].example.com/", "https://x[::1]/", "https://[:::1]/", "https://[::ffff:1.2.3.256]/"),
        # user names
        *("https://user@example.com/", "https://user:pw@example.com/", "https://example.com@127.0.0.1/"),
        *("https://@example.com/", "https://a%40b@example.com/", "https://example.com:443@evil.example/"),
        # backslashes, white space, control characters
        *(
            "https://example.com\\@evil.example/",
            "https:\\\\example.com/",
            "https://example.com/\\x",
            "\\\\a.example",
        ),
        *(
            "http://\x00",
            "https://exa\x00mple.com/",
            "https://exam ple.com/",
            " https://example.com/",
            "https://a.example/\n",
        ),
        *(
            "https://a.example/\r\nX: y",
            "https://a.example/\tb",
            "https://a.example/\x7f",
            "https://a.example/\u2028",
        ),
        *("https://a.example/\xa0", "https://a.example/\x85", "ht\ntps://a.example/"),
        # fragments
        *("https://a.example/#x", "https://a.example#@evil.example/", "https://a.example?x#y"),
        # schemes
        *(
            "",
            "a.example",
            "//a.example/",
            "ftp://a.example/",
            "file:///etc/passwd",
            "gopher://a.example/",
            "https:",
        ),
        *(
            "https:/a.example/",
            "https:///a.example",
            "https://",
            "https://?x",
            "httpss://a.example/",
            "javascript:alert(1)",
        ),
        # ports
        *("https://a.example:/", "https://a.example:0/", "https://a.example:65536/", "https://a.example:999999/"),
        *(
            "https://a.example:+443/",
            "https://a.example:４４３/",
            "https://a.example:443:443/",
            "https://a.example:x/",
        ),
        # names
        *(
            "https://.example/",
            "https://a..example/",
            "https://a.example./",
            "https://-a.example/",
            "https://a-.example/",
        ),
        *(
            "https://a_b.example/",
            "https://a%2eb.example/",
            "https://a,b.example/",
            "https://$x.example/",
            "https://*.example/",
        ),
        *(
            f"https://{'a' * 64}.example/",
            f"https://{'a.' * 126}example/",
            "https://a／b.example/",
            "https://a＠b.example/",
        ),
        *("https://℀.example/", "https://\u202ea.example/", "https://\ud800.example/", "https://😀.example/"),
        # paths
        *("https://a.example/é", "https://a.example/?q=😀", "https://a.example/" + "x" * 2048),
    ],
)
def test_bad_urls(url: str) -> None:
    """URLs that parsers read differently are refused with a message, without another exception."""
    assert len(refusal(url)) > 20


@pytest.mark.parametrize(
    "host", ["metadata", "metadata.google.internal", "instance-data", "Metadata.Google.Internal"]
)
def test_metadata_names(host: str) -> None:
    """Names of metadata services are refused even if everything is allowed."""
    assert "never sent there" in refusal(f"http://{host}/", EVERYTHING)


@pytest.mark.parametrize(
    "host", ["localhost", "receiver", "a.localhost", "db.local", "x.internal", "nas.home.arpa"]
)
def test_private_names(host: str) -> None:
    """A private name is refused at creation, with the name of the setting, and allowed if that is set."""
    assert "`allow_private_cidrs`" in refusal(f"http://{host}/")
    assert check_url(f"http://{host}:9000/", LOOPBACK).host == host


@pytest.mark.parametrize("url", ["https://user@a.example/", "https://u:p@a.example/", "https://@[::1]:9876"])
def test_user_names(url: str) -> None:
    """The refusal of a user name says where to put a token instead."""
    assert "Put a token in the path" in refusal(url)


def test_http_is_a_setting() -> None:
    """Plain http is refused unless webhook_allow_http is set, which the message names."""
    assert "`webhook_allow_http`" in refusal("http://a.example/", STRICT)
    assert not check_url("http://a.example/", PLAIN).tls


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_impossible_ports(port: int) -> None:
    """A port outside 1 to 65535 is refused even if any port is allowed."""
    assert "1 to 65535" in refusal(f"http://127.0.0.1:{port}/", EVERYTHING)


@pytest.mark.parametrize("port", [80, 443, 8080, 8443])
def test_allowed_ports(port: int) -> None:
    """The usual web ports are allowed for public hosts with both schemes."""
    assert check_url(f"https://a.example:{port}/", STRICT).port == port
    assert check_url(f"http://8.8.8.8:{port}/", PLAIN).port == port


@pytest.mark.parametrize("host", ["a.example", "8.8.8.8", "[2606:4700::1111]"])
@pytest.mark.parametrize("port", [1, 22, 25, 3306, 6379, 9001, 65535])
def test_other_ports(host: str, port: int) -> None:
    """Other ports of public hosts are refused, and the message lists the allowed ones."""
    assert "80, 443, 8080, 8443" in refusal(f"https://{host}:{port}/")


def test_other_ports_of_public_addresses_are_refused() -> None:
    """An allowed private range allows no other port for a name with a public address."""
    check_url("http://a.example:9000/", LOOPBACK)
    with pytest.raises(Refused, match="port 9000"):
        check_address(ip_address("8.8.8.8"), target(port=9000), LOOPBACK)


def test_messages_do_not_contain_the_path() -> None:
    """No refusal contains the path or query, which can contain a token."""
    for url in (
        "http://a.example/T0KEN",
        "https://localhost/?T0KEN",
        "https://10.0.0.1/T0KEN",
        "https://a/T0KEN#",
    ):
        assert "T0KEN" not in refusal(url, STRICT)


pieces = st.sampled_from(
    [
        *"/:@?#[]%.\\-_ \t",
        "a.example",
        "evil.example",
        "127.0.0.1",
        "8.8.8.8",
        "::1",
        "0x7f",
        "443",
        "é",
        "。",
        "//",
    ]
)
urls = st.text() | st.lists(pieces | st.characters(), max_size=8).map(lambda parts: "https://" + "".join(parts))


@given(url=urls)
def test_other_parsers_agree(url: str) -> None:
    """Any text is refused, or two other parsers read the same host and port."""
    try:
        found = check_url(url, PLAIN)
    except Refused:
        return
    if url.isascii():
        standard, other = urlsplit(url), urllib3.util.parse_url(url)
        assert other.host is not None
        hosts = {text.strip("[]") for text in (standard.hostname or "", other.host)}
        assert {str(ip_address(host)) if ":" in host else host for host in hosts} == {found.host}
        assert (standard.port or 443) == (other.port or 443) == found.port


@given(label=st.text(st.characters(exclude_characters="/?"), min_size=1, max_size=20))
def test_hosts_are_letters_digits_hyphens(label: str) -> None:
    """Whatever Unicode a name contains, an accepted host is lower-case ASCII letters, digits, hyphens and dots."""
    try:
        found = check_url(f"https://{label}.example/", PLAIN)
    except Refused:
        return
    assert set(found.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert found.host.endswith(".example")
