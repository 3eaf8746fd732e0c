"""Where a script may not be led: no address of this machine, of its networks or of a cloud's own services.
Nothing is sent to any.
"""

import ipaddress
import socket

import pytest
from http_kit import PUBLIC, Server, ask, connecting, ok, to, without_sockets

from ctx.errors import ToolError
from ctx.lua import address, fetch

HOSTILE = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://localhost./",
    "http://0.0.0.0/",
    "http://0/",
    "http://127.1/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://127.0.0.1./",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1%25lo]/",
    "http://[fe80::1%lo]/",
    "http://[fec0::1]/",
    "http://[fd00::1]/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://198.18.0.1/",
    "http://192.88.99.1/",
    "http://example.com@127.0.0.1/",
    "http://user:pass@example.com/",
    "http://@example.com/",
    "http://127.0.0.1\\@example.com/",
    "http://\\127.0.0.1/",
    "http://127.0.0.1\t.example.com/",
    "http://exa mple.com/",
    "http://example.com/a b\r\nX: y",
    "http://example.com/\x00",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://127。0。0。1/",
    "http://%31%32%37.0.0.1/",
    "http:127.0.0.1",
    "http:/127.0.0.1/",
    "http:///127.0.0.1/",
    "//127.0.0.1/",
    "127.0.0.1",
    "",
    "http://",
    "http://:80/",
    "http://[::1/",
    "http://[]/",
    "http://example.com:99999/",
    "http://example.com:-1/",
    "http://example.com:abc/",
    "http://example.com:22/",
    "https://example.com:6379/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://example.com/",
    "ws://example.com/",
    "javascript:alert(1)",
    "unix:/var/run/docker.sock",
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
def test_no_spelling_of_this_machine_or_of_no_web_address_is_connected_to(url: str) -> None:
    with connecting() as attempts, pytest.raises(ToolError):
        ask(url, deadline_s=3, resolve=_numbers_or_public)
    assert attempts == []


def test_a_public_name_is_connected_to() -> None:
    """What the test above would see if a URL in it were let through."""
    with connecting() as attempts, pytest.raises(ToolError, match="the connection failed"):
        ask("https://example.com/", deadline_s=3, resolve=_numbers_or_public)
    assert attempts == [(PUBLIC, 443)]


# One of each block of IANA's registries, its ends, the clouds' own, and what carries an IPv4 address inside.
REFUSED = [
    "0.0.0.0",
    "0.255.255.255",
    "10.255.255.255",
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.23",
    "169.254.42.42",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.9",
    "192.0.0.10",
    "192.0.0.170",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.2",
    "192.168.255.255",
    "192.175.48.6",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "233.252.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::a9fe:a9fe",
    "::168.63.129.16",
    "::ffff:168.63.129.16",
    "::ffff:93.184.216.34",
    "::ffff:0:127.0.0.1",
    "64:ff9b::a83f:8110",
    "64:ff9b::5db8:d822",
    "64:ff9b:1::a00:1",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:1::1",
    "2001:2::1",
    "2001:3::1",
    "2001:4:112::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:db8::1",
    "2002:a83f:8110::1",
    "2002:5db8:d822::1",
    "2620:4f:8000::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "fc00::1",
    "fd00:42::42",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fe80::1",
    "fe80::a9fe:a9fe%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
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
def test_an_address_set_aside_is_refused_before_a_socket_is_made(text: str) -> None:
    assert not address.address_allowed(text)
    with without_sockets(), connecting() as attempts, pytest.raises(ToolError, match="private network"):
        ask("http://innocent.example/", resolve=lambda name, port: [text], deadline_s=2)
    assert attempts == []


@pytest.mark.parametrize(
    "text",
    [PUBLIC, "1.1.1.1", "100.63.255.255", "100.128.0.0", "168.63.129.15", "168.63.129.17", "172.32.0.1"],
)
def test_the_neighbours_of_what_is_set_aside_are_reached(text: str) -> None:
    assert address.address_allowed(text)
    assert address.address_allowed("2606:4700:4700::1111")


def test_every_block_and_every_service_of_the_lists_is_refused_from_end_to_end() -> None:
    blocks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = [
        *address.IPV4_SPECIAL,
        *address.IPV6_SPECIAL,
    ]
    for block in blocks:
        for end in (block.network_address, block.broadcast_address):
            assert not address.address_allowed(str(end)), block
    for service in address.CLOUD_SERVICES:
        assert not address.address_allowed(str(service))


def test_the_lists_hold_without_what_this_python_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ipaddress` learns of blocks with its versions; what is refused must not hang on which one runs."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", True)
    assert [text for text in REFUSED if address.address_allowed(text)] == []


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


def test_a_name_that_is_not_known_says_so() -> None:
    def unknown(name: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(ToolError, match=r"HTTP GET http://no\.example/p failed: the host is not known"):
        ask("http://no.example/p?key=secret", resolve=unknown)


def test_taking_the_address_check_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "address_allowed", lambda text: True)
    with connecting() as attempts, pytest.raises(ToolError):
        ask("http://127.0.0.9/", deadline_s=2)
    assert attempts == [("127.0.0.9", 80)]


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
    "location",
    [
        "http://127.0.0.1/",
        "//127.0.0.1/",
        "http://169.254.169.254/latest/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://user:pw@example.com/",
        "http://[::1/",
        "http://example.com:22/",
    ],
)
def test_a_redirect_to_what_may_not_be_asked_for_is_refused(server: Server, location: str) -> None:
    server.routes["/"] = to(location)
    with connecting() as attempts, pytest.raises(ToolError, match="http:"):
        ask(f"http://{server.at}/", allow=[server.at])
    assert attempts == [("127.0.0.1", server.port)]


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


def test_a_redirect_of_a_host_that_nobody_named_leads_to_no_port_that_was_allowed() -> None:
    named = frozenset({"tickets.internal:8443"})
    with pytest.raises(ToolError, match="in allow_hosts, and it is not: ask that one itself"):
        fetch.redirected(
            fetch.target_of("https://public.example/", named), "https://tickets.internal:8443/", named
        )


def test_what_a_host_that_nobody_named_leads_to_is_judged_by_its_address(
    monkeypatch: pytest.MonkeyPatch, server: Server, other: Server
) -> None:
    """The first one is public here, and the second, though it may be private, was not asked for."""
    monkeypatch.setattr(fetch, "address_allowed", lambda text: text == server.at.partition(":")[0])
    monkeypatch.setitem(fetch.PORTS, "http", server.port)
    server.routes["/"] = to(f"http://inside.example:{server.port}/secret")
    names = {"public.example": [server.at.partition(":")[0]], "inside.example": ["127.0.0.9"]}
    with connecting() as attempts, pytest.raises(ToolError, match="no redirect of a host that is not named"):
        ask(
            f"http://public.example:{server.port}/",
            allow=["inside.example"],
            resolve=lambda name, port: names[name],
        )
    assert attempts == [("127.0.0.1", server.port)]
