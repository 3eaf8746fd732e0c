"""Scripts reach no private address and no cloud metadata service. Nothing is sent to any."""

import ipaddress
import socket

import pytest
from http_kit import PUBLIC, Server, ask, connecting, ok, to

from ctx.errors import ToolError
from ctx.lua import fetch

HOSTILE = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1%lo]/",
    "http://192.168.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://192.88.99.1/",
    "http://example.com@127.0.0.1/",
    "http://user:pass@example.com/",
    "http://\\127.0.0.1/",
    "http://example.com/a b\r\nX: y",
    "http://example.com/\x00",
    "http://127。0。0。1/",
    "127.0.0.1",
    "http://[::1/",
    "http://example.com:abc/",
    "http://example.com:22/",
    "file:///etc/passwd",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
    "http://example.com/" + "a" * 9000,
]


def _numbers_or_public(name: str, port: int) -> list[str]:
    """A resolver without a network: numbers and localhost are what they are, every other name is out in the
    world.
    """
    if name == "localhost":
        return ["127.0.0.1"]
    try:
        entries = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return [PUBLIC]
    return [str(entry[4][0]) for entry in entries]


@pytest.mark.parametrize("url", HOSTILE, ids=range(len(HOSTILE)))
def test_no_spelling_of_a_local_or_invalid_address_is_connected_to(url: str) -> None:
    with connecting() as attempts, pytest.raises(ToolError):
        ask(url, deadline_s=3, resolve=_numbers_or_public)
    assert attempts == []


# One of each block of IANA's registries, its ends, the clouds' own, and what carries an IPv4 address inside.
REFUSED = [
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "::",
    "::a9fe:a9fe",
    "::168.63.129.16",
    "::ffff:168.63.129.16",
    "::ffff:93.184.216.34",
    "::ffff:0:127.0.0.1",
    "64:ff9b::5db8:d822",
    "100:0:0:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2002:a83f:8110::1",
    "2002:5db8:d822::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "2606:4700::5efe:a00:1",
    "2606:4700::200:5efe:7f00:1",
    "2606:4700::1%eth0",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "2130706433",
    "127.1",
    "93.184.216.34/32",
    "93.184.216.34 ",
    "٩٣.184.216.34",
    "",
]


@pytest.mark.parametrize("text", REFUSED)
def test_an_address_set_aside_is_refused(text: str) -> None:
    assert not fetch.address_allowed(text)
    with connecting() as attempts, pytest.raises(ToolError, match="private network"):
        ask("http://innocent.example/", resolve=lambda name, port: [text], deadline_s=2)
    assert attempts == []


BLOCKS = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
    *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4"),
    *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64"),
    *("100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    *("5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
)
METADATA_SERVICES = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "169.254.0.23", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "168.63.129.16", "100.100.100.200"),
)


def test_every_block_and_every_service_of_the_lists_is_refused_from_end_to_end() -> None:
    for block in map(ipaddress.ip_network, BLOCKS):
        for end in (block.network_address, block.broadcast_address):
            assert not fetch.address_allowed(str(end)), block
    for service in METADATA_SERVICES:
        assert not fetch.address_allowed(service)


def test_the_address_lists_do_not_depend_on_the_python_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ipaddress` learns of blocks with its versions; what is refused must not hang on which one runs."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", True)
    assert [text for text in REFUSED if fetch.address_allowed(text)] == []


@pytest.mark.parametrize(
    "private",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "fd12::1"],
)
def test_a_name_with_any_private_address_is_refused_whatever_else_it_has(private: str) -> None:
    for addresses in ([private], [PUBLIC, private], [private, PUBLIC]):
        with connecting() as attempts, pytest.raises(ToolError, match="private network"):
            # type: ignore[misc]
            ask("http://innocent.example/", resolve=lambda name, port, answer=addresses: answer, deadline_s=2)
        assert attempts == []


def test_a_name_is_asked_for_once_and_the_connection_goes_to_the_answer() -> None:
    """DNS rebinding: the name would lead to this machine the second time. It is not asked a second time."""
    questions: list[str] = []

    def rebinding(name: str, port: int) -> list[str]:
        questions.append(name)
        return [PUBLIC] if len(questions) == 1 else ["127.0.0.1"]

    with connecting() as attempts, pytest.raises(ToolError):
        ask("http://rebind.example/", resolve=rebinding, deadline_s=0.3)
    assert questions == ["rebind.example"]
    assert attempts == [(PUBLIC, 80)]


@pytest.mark.parametrize("hops", [0, 1, 5])
def test_a_redirect_to_a_private_host_is_refused_on_every_hop(
    server: Server, other: Server, hops: int
) -> None:
    for hop in range(hops):
        server.routes[f"/{hop}"] = to(f"/{hop + 1}")
    server.routes[f"/{hops}"] = to(f"http://{other.at}/secret")
    other.routes["/secret"] = ok(b"secret")
    with connecting() as attempts, pytest.raises(ToolError, match=r"port|private"):
        ask(f"http://{server.at}/0", allow=[server.at])
    assert other.seen == []
    assert {port for _, port in attempts} == {server.port}


@pytest.mark.parametrize(
    ("url", "location", "port", "trusted"),
    [
        ("http://10.0.0.7/", "http://10.0.0.7:8443/x", 8443, True),  # both are named
        ("http://10.0.0.7/", "https://public.example/", 443, False),
        ("https://public.example/", "http://10.0.0.7/admin", 80, False),  # so that its address is looked at
        ("https://public.example/", "http://inside.example/admin", 80, False),
        ("https://public.example/", "https://other.example/", 443, False),
    ],
)
def test_a_redirect_of_a_host_that_nobody_named_is_no_word_of_the_operators(
    url: str, location: str, port: int, trusted: bool
) -> None:
    """Else whoever runs it chooses what is asked of a server inside."""
    named = frozenset({"10.0.0.7", "inside.example"})
    following = fetch.redirected(fetch.target_of(url, named), location, named)
    assert (following.port, following.trusted) == (port, trusted)
