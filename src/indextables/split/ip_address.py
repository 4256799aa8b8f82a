"""IP addresses: one order for IPv4 and IPv6, and what a query may say about them.

An IPv4 address is the IPv6 address `::ffff:a.b.c.d`, as Tantivy keeps it, so every query is a range
of 128-bit numbers.
"""

from __future__ import annotations

import ipaddress
import itertools
import re

from indextables.errors import QueryError
from indextables.predicate import FieldNode, Phrase, Range, Term, TermSet, Wildcard

_MAPPED = 0xFFFF << 32
_LAST = 2**128 - 1
_WILDCARD = re.compile(r"(?:\d{1,3}|\*)(?:\.(?:\d{1,3}|\*)){3}")


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


def parse_addresses(text: str) -> list[tuple[int, int]]:
    """The ranges of addresses that an address, a CIDR block or octet wildcards mean.

    >>> parse_addresses("10.0.*.*") == parse_addresses("10.0.0.0/16")
    True
    """
    text = text.strip()
    if (single := parse_address(text)) is not None:
        return [(single, single)]
    if _WILDCARD.fullmatch(text):
        return _octets(text.split("."))
    if "/" not in text:
        return []
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return []
    base = _MAPPED if network.version == 4 else 0
    return [(base | int(network.network_address), base | int(network.broadcast_address))]


def _octets(octets: list[str]) -> list[tuple[int, int]]:
    """Wildcards at the end are one range; each one before a number multiplies by 256."""
    fixed = max((i for i, octet in enumerate(octets) if octet != "*"), default=-1) + 1
    if octets[:fixed].count("*") > 1:
        raise QueryError(
            f"'{'.'.join(octets)}' has two wildcards before a number, which are 65,536 ranges of "
            "addresses. Use a CIDR block, or one wildcard before the last number."
        )
    starts = [[octet] if octet != "*" else [str(n) for n in range(256)] for octet in octets[:fixed]]
    ranges = []
    for start in itertools.product(*starts):
        missing = 4 - fixed
        first = parse_address(".".join([*start, *["0"] * missing]))
        last = parse_address(".".join([*start, *["255"] * missing]))
        if first is not None and last is not None:
            ranges.append((first, last))
    return ranges


def parse_ranges(node: FieldNode) -> list[tuple[int, int]]:
    """What a leaf of a search asks of addresses; nothing if it asks for something else."""
    match node:
        case Term(text=text) | Phrase(text=text):
            return parse_addresses(text)
        case Wildcard(parts=parts):
            return parse_addresses("".join(p if isinstance(p, str) else p.value for p in parts))
        case TermSet(values=values):
            return [address for text in values for address in parse_addresses(text)]
        case Range():
            return _between(node)
        case _:
            return []


def _between(node: Range) -> list[tuple[int, int]]:
    low = [(0, 0)] if node.lower is None else parse_addresses(node.lower)
    high = [(_LAST, _LAST)] if node.upper is None else parse_addresses(node.upper)
    if len(low) != 1 or len(high) != 1:
        return []
    first = low[0][0] if node.include_lower or node.lower is None else low[0][1] + 1
    last = high[0][1] if node.include_upper or node.upper is None else high[0][0] - 1
    return [(first, last)] if first <= last else []


def show_address(number: int) -> str:
    """An address as the index takes it."""
    return str(ipaddress.IPv6Address(number))
