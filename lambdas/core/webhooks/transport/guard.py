"""Checks which URLs and addresses webhooks may reach, against server-side request forgery.

Callers choose the URL. Without these checks they could make the service send requests to the metadata service, the
function's runtime API or the private network. `check_url` checks the text, when an endpoint is created and before
each attempt. `check_address` checks every address of the name. The client connects only to a checked address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

import idna

from core.errors import Refused
from core.webhooks.transport.addresses import Access, Address, Network, classify

PORTS = frozenset({80, 443, 8080, 8443})
MAX_URL_CHARS = 2048


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the operator allows.

    An address in `allow_private_cidrs` can be private and have any port. `forbidden` are (host, port) pairs that
    are never allowed, such as that of the Lambda runtime API. `own_names` are those at which this service answers:
    with an API key in a header, an endpoint there would make it call itself without an end. A name has no address
    of its own, because a content network serves many names at one.
    """

    allow_http: bool = False
    allow_private_cidrs: tuple[Network, ...] = ()
    forbidden: frozenset[tuple[str, int]] = frozenset()
    own_names: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        allow_http: bool,
        allow_private_cidrs: Iterable[str],
        own_hosts: Iterable[str] = (),
        runtime_api: str = "",
        credentials_uri: str = "",
    ) -> Policy:
        """From the configuration and the function's environment.

        `own_hosts`: `host` (at port 443) or `host:port`, names or addresses.
        `runtime_api`: `AWS_LAMBDA_RUNTIME_API` (`host:port`), which serves events. `credentials_uri`:
        `AWS_CONTAINER_CREDENTIALS_FULL_URI`, which serves credentials.
        """
        internal = (f"http://{runtime_api}" if runtime_api else "", credentials_uri)
        own = [_host_and_port(f"https://{host}") for host in own_hosts]
        own_addresses = {(host, port) for host, port in own if ":" in host or _NUMERIC_END.fullmatch(host)}
        return cls(
            allow_http=allow_http,
            allow_private_cidrs=tuple(ip_network(cidr) for cidr in allow_private_cidrs),
            forbidden=frozenset(own_addresses.union(_host_and_port(url) for url in internal if url)),
            own_names=frozenset(own) - own_addresses,
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """A parsed URL. `host` is lower-case ASCII without brackets. `address` is set if the host is an address."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


_DEFAULT_PORTS = {"http": 80, "https": 443}

_LOCAL_NAMES = re.compile(r"[^.]+|.*\.(?:localhost|local|internal|home\.arpa)")  # RFC 6761, 6762, 8375
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}
)

_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")
_URL = re.compile(r"(https?)://([^/?#]*)([/?][!-~]*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:%]+)(?::([0-9]{1,5}))?")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LDH = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)")


def check_url(url: str, policy: Policy) -> Target:
    """Parse a URL strictly: URLs that parsers read differently are refused. Makes no DNS lookup.

    Raises Refused, with what to change. The message can contain the host, but not the path and query, which can
    contain a token.
    """
    scheme, authority, path = _split(url)
    if scheme == "http" and not policy.allow_http:
        raise Refused("The webhook URL must start with https:// (plain http needs `webhook_allow_http`).")
    host_text, port = _split_authority(authority, scheme)
    host, address = _read_host(host_text)
    target = Target(scheme=scheme, host=host, port=port, path=path, address=address)
    if address:
        check_address(address, target, policy)
    else:
        _check_name(target, policy)
    return target


def host_and_port(url: str) -> str:
    """`host:port` of a URL, the same text for every way to write them. Raises Refused for a malformed URL."""
    scheme, authority, _ = _split(url)
    text, port = _split_authority(authority, scheme)
    host, _ = _read_host(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_address(address: Address, target: Target, policy: Policy) -> None:
    """Raise Refused if `target` must not be reached at `address`, one of the addresses of its host."""
    what, access = classify(address)
    opened = any(address in network for network in policy.allow_private_cidrs)
    if access is Access.NEVER:
        raise Refused(f"{target.host} has an address that is {what}. Webhooks are never sent there.")
    if access is Access.PRIVATE and not opened:
        raise Refused(
            f"{target.host} has an address that is {what}. Use a public one, "
            "or ask the operator to add its network to `allow_private_cidrs`."
        )
    if any(_is_at(forbidden, address, target) for forbidden in policy.forbidden):
        raise _own(target)
    if not opened:
        _check_port(target)


def _split(url: str) -> tuple[str, str, str]:
    if len(url) > MAX_URL_CHARS:
        raise Refused(f"The webhook URL is longer than {MAX_URL_CHARS} characters.")
    if _UNSAFE.search(url):
        raise Refused("The webhook URL contains a space, control character or backslash. Percent-encode it.")
    if "#" in url:
        raise Refused("The webhook URL has a fragment, which is never sent. Remove everything from #.")
    match = _URL.fullmatch(url)
    if not match:
        raise Refused("The webhook URL must be https://host[:port][/path][?query], percent-encoded.")
    scheme, authority, path = match[1].lower(), match[2], match[3] or "/"
    return scheme, authority, path if path.startswith("/") else "/" + path


def _split_authority(authority: str, scheme: str) -> tuple[str, int]:
    if "@" in authority:
        raise Refused("The webhook URL contains a user name. Put a token in the path, or verify the signature.")
    match = _AUTHORITY.fullmatch(authority)
    if not match:
        raise Refused("The webhook URL's host or port is malformed.")
    port = int(match[2]) if match[2] else _DEFAULT_PORTS[scheme]
    if not 0 < port < 65536:
        raise Refused("The webhook URL's port must be 1 to 65535.")
    return match[1], port


def _read_host(text: str) -> tuple[str, Address | None]:
    """The canonical host, and its address if it is one.

    Resolvers also read 127.1, 0x7f.1 and 017700000001 as addresses, so a host that ends in a number must be four
    decimal numbers.
    """
    try:
        if text.startswith("["):
            address: Address = IPv6Address(text[1:-1])
            return str(address), address
        name = _ascii(text)
        if _NUMERIC_END.fullmatch(name):
            return name, IPv4Address(name)
    except ValueError:
        raise Refused("The webhook URL's host is not a name, or an address in its usual form.") from None
    if not _LDH.fullmatch(name):
        raise Refused("The webhook URL's host can only contain letters, digits, hyphens and single dots.")
    return name, None


def _ascii(name: str) -> str:
    return name.lower() if name.isascii() else idna.encode(name, uts46=True, std3_rules=True).decode()


def _own(target: Target) -> Refused:
    return Refused(f"{target.host} at port {target.port} is part of this service. Webhooks are never sent there.")


def _check_name(target: Target, policy: Policy) -> None:
    if (target.host, target.port) in policy.own_names:
        raise _own(target)
    if target.host in _METADATA_NAMES:
        raise Refused(f"{target.host} is a cloud's metadata service. Webhooks are never sent there.")
    # The addresses of a private name are checked before each attempt. Here the setting is enough.
    if policy.allow_private_cidrs:
        return
    if _LOCAL_NAMES.fullmatch(target.host):
        raise Refused(
            f"{target.host} is a private name. Use a public one, "
            "or ask the operator to add its network to `allow_private_cidrs`."
        )
    _check_port(target)


def _check_port(target: Target) -> None:
    if target.port not in PORTS:
        allowed = ", ".join(map(str, sorted(PORTS)))
        raise Refused(f"Webhooks cannot use port {target.port}. Use one of {allowed}.")


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


def _is_at(forbidden: tuple[str, int], address: Address, target: Target) -> bool:
    """Whether `target` at `address` can be the forbidden host and port."""
    host, port = forbidden
    if port != target.port:
        return False
    try:
        own = ip_address(host)
    except ValueError:
        own = IPv4Address(0)
    if own.is_unspecified:
        # A name, or all addresses of this host, can be any address that is not public.
        return host == target.host or classify(address)[1] is not Access.PUBLIC
    return own == address or (own.is_loopback and address.is_loopback)
