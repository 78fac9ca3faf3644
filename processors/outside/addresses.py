"""Decides which addresses a fetch may reach: public addresses, and those that an operator adds.
Pure.

A host is judged by its addresses, not by its name. The connection must go to the address that was
checked, because a moment later the name may resolve to another address.
"""

from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Networks that count as globally routable but are not public: the metadata services of clouds (some
# in the range for protocols), obsolete relays and site-local addresses, and addresses for examples.
_INSIDE = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",
            "fd00:ec2::/32",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "fec0::/10",
            "3fff::/20",
        ),
    )
)
# IPv6 networks whose addresses contain an IPv4 address, the packet's real destination.
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))


def networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Parse the networks that an operator allows, such as 10.1.2.0/24. Raises ValueError if a text
    is not a network."""
    try:
        return tuple(ip_network(text) for text in given)
    except ValueError as wrong:  # raised here, so that the traceback shows the agent
        raise ValueError(f"a network is written as 10.1.2.0/24: {wrong}") from None


def is_allowed(text: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether an address may be reached: it is public, or in an allowed network."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if getattr(address, "scope_id", None) is not None:
        return False  # such as 2001:db8::1%eth0: an address with a zone is never public
    if any(address in network for network in allowed):
        return True
    return all(_is_public(each) for each in (address, *_inner(address)))


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _INSIDE)
    )


def _inner(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address contains."""
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _NAT64):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 == 0:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))  # ::a.b.c.d, obsolete
    return [each for each in found if each is not None]
