"""IP addresses: one order for IPv4 and IPv6, and what a query may say about them.

An IPv4 address is the IPv6 address `::ffff:a.b.c.d`, as Tantivy keeps it, so every query is a range
of 128-bit numbers.
"""

from __future__ import annotations

import ipaddress
import re

_MAPPED = 0xFFFF << 32
_WILDCARD = re.compile(r"\d{1,3}(?:\.\d{1,3}){0,2}(?:\.\*){1,3}|\*(?:\.\*){3}")


def parse_address(text: str) -> int | None:
    """An address as a number, or `None`.

    >>> parse_address("::ffff:10.0.0.1") == parse_address("10.0.0.1")
    True
    """
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return _MAPPED | int(address)
    return None if address.scope_id else int(address)


def parse_addresses(text: str) -> tuple[int, int] | None:
    """The first and last address that an address, a CIDR block or octet wildcards mean.

    >>> parse_addresses("10.0.*.*") == parse_addresses("10.0.0.0/16")
    True
    """
    text = text.strip()
    if (single := parse_address(text)) is not None:
        return single, single
    if _WILDCARD.fullmatch(text) and text.count(".") == 3:
        first, last = parse_address(text.replace("*", "0")), parse_address(text.replace("*", "255"))
        return None if first is None or last is None else (first, last)
    if "/" not in text:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    base = _MAPPED if network.version == 4 else 0
    return base | int(network.network_address), base | int(network.broadcast_address)


def show_address(number: int) -> str:
    """An address as the index takes it."""
    return str(ipaddress.IPv6Address(number))
