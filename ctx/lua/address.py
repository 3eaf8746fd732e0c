"""Which addresses a request may connect to: those of the public internet only.

Refused are (sources read 2026-11):

- every block of the IANA special-purpose registries, including the globally reachable ones, because none has
  web servers: https://www.iana.org/assignments/iana-ipv4-special-registry/ and iana-ipv6-special-registry
- IPv4 multicast (RFC 5771), and every IPv6 address outside global unicast, 2000::/3:
  https://www.iana.org/assignments/ipv6-address-space/
- IPv6 addresses that contain an IPv4 address (RFC 3056, 4291, 4380, 5214, 6052, 8215)
- the clouds' metadata services, which give credentials to every program on the machine
"""

import ipaddress
from ipaddress import IPv4Network, IPv6Address, IPv6Network

IPV4_SPECIAL = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private use, RFC 1918
        "100.64.0.0/10",  # shared address space of providers, RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
        "169.254.0.0/16",  # link-local, RFC 3927
        "172.16.0.0/12",  # private use, RFC 1918
        # protocol assignments, RFC 6890: DS-Lite, NAT64 discovery, PCP and TURN anycast in it
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation (TEST-NET-1), RFC 5737
        "192.31.196.0/24",  # AS112-v4, RFC 7535
        "192.52.193.0/24",  # AMT relays, RFC 7450
        "192.88.99.0/24",  # 6to4 relay anycast, withdrawn, RFC 7526
        "192.168.0.0/16",  # private use, RFC 1918
        "192.175.48.0/24",  # AS112 by delegation, RFC 7534
        "198.18.0.0/15",  # benchmarking, RFC 2544
        "198.51.100.0/24",  # documentation (TEST-NET-2), RFC 5737
        "203.0.113.0/24",  # documentation (TEST-NET-3), RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved, RFC 1112, and the broadcast address at its end, RFC 8190
    )
)
IPV6_GLOBAL_UNICAST = IPv6Network("2000::/3")
IPV6_SPECIAL = tuple(
    IPv6Network(block)
    for block in (
        "::/96",  # unspecified, loopback, and IPv4-compatible, RFC 4291
        "::ffff:0:0/96",  # IPv4-mapped, RFC 4291
        "::ffff:0:0:0/96",  # IPv4-translated (SIIT), RFC 2765
        "64:ff9b::/96",  # NAT64's well-known prefix, RFC 6052
        "64:ff9b:1::/48",  # NAT64 for local use, RFC 8215
        "100::/64",  # discard-only, RFC 6666
        "100:0:0:1::/64",  # dummy prefix, RFC 9780
        "2001::/23",  # protocol assignments, RFC 2928: Teredo, ORCHID, benchmarking, anycasts in it
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4, RFC 3056
        "2620:4f:8000::/48",  # AS112 by delegation, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
        "5f00::/16",  # segment routing identifiers, RFC 9602
        "fc00::/7",  # unique local, RFC 4193
        "fe80::/10",  # link-local, RFC 4291
        "fec0::/10",  # site-local, withdrawn, RFC 3879
        "ff00::/8",  # multicast, RFC 4291
    )
)
# Most are in a block above. 168.63.129.16 looks like any public address.
CLOUD_SERVICES = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # metadata: AWS, Google, Azure, Oracle, OpenStack, DigitalOcean, Hetzner
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "fd00:ec2::254",  # AWS metadata
        "fd00:ec2::23",  # AWS EKS pod identity
        "fd20:ce::254",  # Google metadata
        # Azure WireServer: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        "168.63.129.16",
        "100.100.100.200",  # Alibaba metadata
        "192.0.0.192",  # Oracle Cloud Classic metadata
        "169.254.42.42",  # Scaleway metadata
        "fd00:42::42",  # Scaleway metadata
        "169.254.0.23",  # Tencent metadata
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)  # above the IPv4 address in the lower half of an address, RFC 5214


def address_allowed(text: str) -> bool:
    """Whether an address is on the public internet, and not this machine or its networks in any notation.

    An IPv4 address behind a provider's own NAT64 prefix cannot be recognised; that network must guard it.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address in CLOUD_SERVICES or not address.is_global:
        return False
    if not isinstance(address, IPv6Address):
        return not any(address in block for block in IPV4_SPECIAL)
    return (
        address.scope_id is None
        and address in IPV6_GLOBAL_UNICAST
        and not any(address in block for block in IPV6_SPECIAL)
        and (int(address) >> 32) & 0xFFFFFFFF not in _ISATAP
    )
