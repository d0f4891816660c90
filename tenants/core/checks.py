"""Checks of single values that a pattern cannot make.

An endpoint's address is where the gateway sends prompts and the engine's key, and whoever edits
policy chooses it. So addresses that hand out a machine's credentials are refused: link-local
ones and the clouds' metadata hosts, in every spelling that a resolver would accept.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo

METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "instance-data"})
METADATA_ADDRESSES = frozenset(  # Alibaba, Azure's host, Oracle's old one, AWS, Google
    {"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"}
)
OWN_VARIABLES = frozenset(
    {"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "ALLOWED_HOSTS", "DJANGO_SETTINGS_MODULE", "PATH"}
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# NAT64, its local prefix, IPv4-translated and IPv4-compatible: the last 32 bits are IPv4.
IPV4_AT_END = tuple(
    ipaddress.IPv6Network(each)
    for each in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST = re.compile(rf"(?=.{{1,254}}$){LABEL}(\.{LABEL})*\.?")
NUMBER_AT_END = re.compile(r"(.*\.)?(\d+|0[xX][0-9a-fA-F]*)\.?")


def endpoint_url(value: str) -> str:
    """The URL without a trailing slash.

    Raises:
        ValueError: not http(s), no host, credentials, a query, or an address that is refused.
    """
    if re.search(r"[\s\x00-\x1f\x7f\\]", value) or len(value) > 2000:
        raise ValueError("a URL has no spaces, backslashes or control characters")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL ({error})") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("it takes http://host:port/v1 or https://host/v1")
    if "[" in parts.netloc and ":" not in parts.hostname:
        raise ValueError("brackets stand round an IPv6 address only")
    _has_only_host_and_path(parts, value)
    no_metadata_host(parts.hostname)
    return value.rstrip("/")


def _has_only_host_and_path(parts: SplitResult, value: str) -> None:
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL; name a variable in api_key_env")
    if "?" in value or "#" in value:
        raise ValueError("an endpoint has no query and no fragment")


def webhook_url(value: str) -> str:
    """Where alerts are posted; what holds for an endpoint's address holds for it.

    Raises:
        ValueError: as `endpoint_url`.
    """
    if "@" in value:
        raise ValueError("credentials do not belong in a URL; messages are signed")
    endpoint_url(value)
    return value


def no_metadata_host(host: str) -> None:
    """A name or an address; raises ValueError where it may lead to a machine's credentials."""
    if host.rstrip(".").lower() in METADATA_HOSTS:
        raise ValueError("metadata hosts are refused")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not HOST.fullmatch(host) or NUMBER_AT_END.fullmatch(host):
            raise ValueError("the host is neither a name nor a plain IP address") from None
        return
    for reached in (address, _embedded(address)):
        if reached.is_link_local or reached.is_multicast or str(reached) in METADATA_ADDRESSES:
            raise ValueError("link-local and metadata addresses are refused")


def _embedded(address: Address) -> Address:
    """The IPv4 address that a mapped, translated or tunnelled address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if any(address in network for network in IPV4_AT_END):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def engine_variable(value: str) -> str:
    if not VARIABLE.fullmatch(value):
        raise ValueError("it takes the name of an environment variable, such as ENGINE_KEY")
    if value.upper() in OWN_VARIABLES or value.upper().startswith("FAIRLANE_"):
        raise ValueError("Fairlane's own variables are never sent to an engine")
    return value


# What they mean differs from machine to machine, or by leap seconds.
ODD_ZONES = re.compile(r"localtime|posixrules|Factory|right/.*")


def zone_name(value: str) -> str:
    try:
        if ODD_ZONES.fullmatch(value):
            raise ValueError("not the same everywhere")
        ZoneInfo(value)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError("it takes a time zone's name, such as Europe/Berlin or UTC") from error
    return value


def zone_or_utc(value: str) -> str:
    try:
        return zone_name(value)
    except ValueError:
        return "UTC"
