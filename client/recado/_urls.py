"""Which URLs the client opens: encrypted ones, and plain ones of this machine. Standard library only."""

from __future__ import annotations

import ipaddress
import re
import urllib.request

from recado.errors import InsecureUrl

# Strict, because URL parsers disagree about user names, backslashes and the like in the host.
_PLAIN_URL = re.compile(
    r"(?P<scheme>http|ws)://(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<host>[a-z0-9.-]+))(?::[0-9]{1,5})?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)


def is_plain(url: str) -> bool:
    """Whether the connection is not encrypted. Raises InsecureUrl if its other end is not this machine.

    API keys and the tokens in links would be sent in clear. Names other than `localhost` are refused, because DNS
    may resolve them to any address.
    """
    if url.lower().startswith(("https://", "wss://")):
        return False
    found = _PLAIN_URL.fullmatch(url)
    if found and _is_loopback(found["v6"] or found["host"]):
        return True
    where = f"{found['scheme']}://{found['v6'] or found['host']}" if found else "The URL"
    raise InsecureUrl(
        f"{where} is not encrypted: the API key or the token in the link could be read on the way. Use https:// "
        "(wss:// for WebSockets). Plain http:// is for this machine only: localhost, 127.0.0.1 or [::1]."
    )


def _is_loopback(host: str) -> bool:
    """`localhost`, 127.0.0.0/8, ::1, and IPv4-mapped IPv6 addresses of 127.0.0.0/8 (RFC 4291, section 2.5.5.2)."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Raises HTTPError for redirects."""

    def redirect_request(self, *_: object) -> None:
        return None


def opener(url: str) -> urllib.request.OpenerDirector:
    """Opens this URL without redirects, and a plain one without a proxy. Raises InsecureUrl."""
    direct = [urllib.request.ProxyHandler({})] if is_plain(url) else []
    return urllib.request.build_opener(_NoRedirect, *direct)
