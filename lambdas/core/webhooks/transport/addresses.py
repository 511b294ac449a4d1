"""Classifies IP addresses.

The ranges follow the IANA special-purpose address registries (RFC 6890). Of IPv6, only 2000::/3 is public. The
table is our own, because `is_global` of `ipaddress` changes with patch releases of Python.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Access(Enum):
    """Whether webhooks may be sent there: yes, only if the operator allows it, or never."""

    PUBLIC = "public"
    PRIVATE = "private"
    NEVER = "never"


_PRIVATE = {
    "10.0.0.0/8": "private (RFC 1918)",
    "100.64.0.0/10": "shared by a carrier (RFC 6598)",
    "127.0.0.0/8": "loopback",
    "172.16.0.0/12": "private (RFC 1918)",
    "192.0.0.0/24": "for IETF protocols",
    "192.0.2.0/24": "for documentation",
    "192.168.0.0/16": "private (RFC 1918)",
    "198.18.0.0/15": "for benchmarks",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "240.0.0.0/4": "reserved",
    "::1/128": "loopback",
    "2001:db8::/32": "for documentation",
    "3fff::/20": "for documentation",
    "fc00::/7": "private (RFC 4193)",
    "fec0::/10": "private (RFC 3879)",
}
# No setting allows these: they serve credentials, are not hosts, or contain an IPv4 address.
_NEVER = {
    "0.0.0.0/8": "this host itself",
    "100.100.100.200/32": "a cloud's metadata service",
    "168.63.129.16/32": "a cloud's host agent",
    "169.254.0.0/16": "link-local, where metadata and credentials are served",
    "192.0.0.192/32": "a cloud's metadata service",
    "192.88.99.0/24": "a 6to4 relay",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "::/0": "not global unicast",
    "::/96": "IPv4 inside IPv6",
    "::ffff:0:0/96": "IPv4 inside IPv6",
    "::ffff:0:0:0/96": "IPv4 inside IPv6",
    "64:ff9b::/96": "IPv4 inside IPv6 (NAT64)",
    "64:ff9b:1::/48": "IPv4 inside IPv6 (NAT64)",
    "2001::/23": "for IETF protocols, IPv4 tunnels among them",
    "2002::/16": "IPv4 inside IPv6 (6to4)",
    "fd00:42::42/128": "a cloud's metadata service",
    "fd00:c1::/32": "a cloud's metadata service",
    "fd00:ec2::/32": "a cloud's metadata and credentials service",
    "fd20:ce::/32": "a cloud's metadata service",
    "fe80::/10": "link-local",
    "ff00::/8": "multicast",
}
_PUBLIC = {"0.0.0.0/0": "public", "2000::/3": "public"}

# The most specific range applies, such as ::1 in ::/96.
_RANGES: list[tuple[Network, str, Access]] = sorted(
    (
        (ip_network(text), what, access)
        for table, access in ((_PRIVATE, Access.PRIVATE), (_NEVER, Access.NEVER), (_PUBLIC, Access.PUBLIC))
        for text, what in table.items()
    ),
    key=lambda entry: -entry[0].prefixlen,
)


def classify(address: Address) -> tuple[str, Access]:
    """A description that continues "an address that is", and whether webhooks may be sent there."""
    # RFC 5214, 6.1: with any prefix, with and without the bit for a global IPv4 address.
    if address.version == 6 and int(address) >> 32 & 0xFDFF_FFFF == 0x5EFE:
        return "IPv4 inside IPv6 (ISATAP)", Access.NEVER
    return next((what, access) for network, what, access in _RANGES if address in network)
