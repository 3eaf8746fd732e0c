"""Hosts of addresses: loopback, or every address of this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


def url_host(host: str) -> str:
    """A host as written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_everywhere(host: str) -> bool:
    """Whether a server bound to `host` listens at every address of this machine, in whatever spelling."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
