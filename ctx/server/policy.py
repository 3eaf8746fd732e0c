"""Who may call what: the rules of a server (`Policy`), and what they say about one request (`Access`).

By seed 003 any web page may call REST (CORS `*`, never with credentials), as far as `[server] cors_origins`
and `cross_site_tools` let it. MCP, the packs' own routes and the metrics are private (zones.py): there a web
page of another site must be listed in `allowed_origins` or bring a key. Tools of memory packs are private
wherever they are called.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ctx.config.settings import LOOPBACK_HOSTS
from ctx.errors import ConfigError, NotFound, OriginNotAllowed, Unauthorized
from ctx.http import is_everywhere, is_loopback, split_bind, url_host
from ctx.identity import RESERVED_BANKS
from ctx.models import Caller
from ctx.server import errors
from ctx.server.keys import Grant, Keys, digest
from ctx.server.keys import match as match_key
from ctx.text.strings import one_line
from ctx.tools.rates import Window
from ctx.tools.toolbox import Agent, Tool

ACCESS = "ctx.access"  # where in the ASGI scope a door finds the Access

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::\d{1,5})?")
# Editors and extensions of browsers have schemes of their own: vscode-webview://, chrome-extension://.
_ANY_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]+")


class PackPolicy(NamedTuple):
    """How a memory pack is guarded. `keys` are plain keys from the environment that open this pack alone."""

    name: str
    keys: tuple[str, ...] = ()
    key_required: bool = False  # closed until there is a key (sekha)
    at_banks: bool = False  # it is what /mcp/{bank} and X-Bank-Id lead to (hindsight)


class ServerSettings(NamedTuple):
    """The values the server takes. `bind` is HOST:PORT; `api_keys` are plain keys that open everything."""

    bind: str = "127.0.0.1:7331"
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ("*",)
    cross_site_tools: str = "all"  # all | read_only
    allowed_origins: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    owner_key: str = ""  # for other commands of the user who serves; opens everything, closes nothing
    packs: tuple[PackPolicy, ...] = ()
    rate_limit_per_minute: int = 0  # 0: none
    max_body_bytes: int = 1 << 20
    insecure_no_auth: bool = False
    metrics: bool = False


def check_bind(settings: ServerSettings, ring: Keys | None = None) -> None:
    """Refuses to open the server to a network without a key. Raises `ConfigError`."""
    host, _ = split_bind(settings.bind)
    if (
        is_loopback(host)
        or settings.insecure_no_auth
        or settings.api_keys
        or (ring is not None and ring.candidates())
    ):
        return
    raise ConfigError(
        f'[server] bind = "{settings.bind}" accepts other machines, but there is no key. '
        "Make one with 'ctx key create NAME', or set [server] api_key_env. With --insecure-no-auth "
        "anyone who reaches the port can use the server"
    )


def closed(settings: ServerSettings) -> bool:
    """Whether everything needs a key: by one for the server, or by a bind beyond this machine. Keys for packs
    and banks close those.
    """
    loopback = is_loopback(split_bind(settings.bind)[0])
    return bool(settings.api_keys) or not (loopback or settings.insecure_no_auth)


# Headers that a proxy adds: the request may come from another machine.
_PROXY_HEADERS = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip"})


def own_hosts(bind: str) -> frozenset[str]:
    """The names by which this machine calls a server bound there."""
    host, _ = split_bind(bind)
    bound = () if is_everywhere(host) else (url_host(host),)
    return frozenset(map(host_name, (*LOOPBACK_HOSTS, *bound)))


class Policy:
    """Which keys there are, and what needs one."""

    def __init__(self, settings: ServerSettings, *, ring: Keys | None = None) -> None:
        host, _ = split_bind(settings.bind)
        self.settings = settings
        self.loopback = is_loopback(host)
        self.packs: Mapping[str, PackPolicy] = {pack.name: pack for pack in settings.packs}
        self.closed = closed(settings)
        self._ring = ring
        self._own_hosts = own_hosts(settings.bind)
        self._fixed = [(digest(key), Grant("key:server")) for key in settings.api_keys]
        self._fixed += [
            (digest(key), Grant(f"key:{pack.name}", pack=pack.name))
            for pack in settings.packs
            for key in pack.keys
        ]
        self._owner = [(digest(settings.owner_key), Grant("owner"))] if settings.owner_key else []

    @property
    def has_keys(self) -> bool:
        return bool(self._fixed) or self.ring_closed

    @property
    def ring_closed(self) -> bool:
        """Whether a bank needs a key because keys were made."""
        return self._ring is not None and self._ring.closed

    def closed_to(self, headers: Mapping[str, str]) -> bool:
        """Whether a request needs a key for anything but the page: once keys were made, one that comes
        through a proxy does, though the server listens on this machine alone.
        """
        if self.closed or not self.ring_closed or not self.loopback:
            return self.closed
        elsewhere = host_name(headers.get("host", "")) not in self._own_hosts
        return elsewhere or any(name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in headers)

    def grant(self, key: str) -> Grant | None:
        """What this key opens; None: nothing."""
        made = self._ring.candidates() if self._ring else ()
        return match_key(key, (*self._owner, *self._fixed, *made))

    def locked(self, pack: PackPolicy) -> bool:
        """Whether the pack's tools need a key."""
        return bool(pack.keys) or pack.key_required or self.closed or self.ring_closed or not self.loopback

    def bank_locked(self) -> bool:
        """Whether any request that names a bank needs a key."""
        return self.ring_closed or any(self.locked(pack) for pack in self.packs.values() if pack.at_banks)

    def mcp_locked(self) -> bool:
        """Whether MCP without a bank needs a key: it is the endpoint of the pack at the banks, which was
        given one (seed 000).
        """
        return any(pack.at_banks and pack.keys for pack in self.packs.values())


@dataclass(slots=True)
class Access:
    """What the middlewares know about one request. It is in `scope["ctx.access"]`."""

    policy: Policy
    request_id: str
    headers: Mapping[str, str]
    window: Window | None = None  # the caller's calls are counted here
    closed: bool = True  # to callers without a key
    door: str = "rest"
    error_body: errors.Shape = errors.body  # of the route
    foreign: bool = False  # a web page of another site asks
    grant: Grant | None = None
    bank: str | None = None
    bank_fixed: bool = False
    pack: str | None = None  # the pack whose own MCP endpoint it is
    session_id: str | None = None
    spender: str = ""

    def settle(self, client: tuple[str, int] | None) -> None:
        """Once the key is known: whose calls are counted, and the bank of a key that opens one alone."""
        grant = self.grant
        address = client[0] if client else "local"
        # All pages of other sites count together, and not against the programs on the machine.
        keyless = f"pages at {address}" if self.foreign else address
        self.spender = keyless if grant is None else grant.name
        if self.bank is None and grant is not None and grant.banks is not None and len(grant.banks) == 1:
            self.bank = next(iter(grant.banks))

    @property
    def keyed(self) -> bool:
        """Whether the request has a valid key, or no key is needed."""
        return self.grant is not None or not self.closed

    def admit(self, tool: Tool) -> None:
        """Whether this caller may call this tool. Raises `Unauthorized` or `OriginNotAllowed`."""
        if tool.pack is not None:
            self.admit_pack(tool.pack)
            return
        self.admit_documents()
        if not open_to_pages(tool, self.policy.settings):
            self._admit_effect(f"tool '{tool.name}'")

    def admit_documents(self) -> None:
        """Whether this caller may see the documents. Raises `Unauthorized`: on a closed server a pack's key
        opens that pack alone, and a bank's key that bank.
        """
        grant = self.grant
        if grant is None or self.shows(None):
            return
        if grant.pack is not None:
            raise Unauthorized(f"this key is only for the pack {grant.pack}", presented=True)
        banks = ", ".join(sorted(grant.banks or ()))
        raise Unauthorized(f"this key is only for memories of the bank {banks}", presented=True)

    def shows(self, pack: str | None) -> bool:
        """Whether lists show this caller what belongs to a pack, or to none (None: documents, tools, agents).
        A key for memories alone shows nothing else.
        """
        grant = self.grant
        if not self.closed or grant is None or grant.whole:
            return True
        return pack is not None and grant.pack in (None, pack)

    def admit_agent(self, agent: Agent) -> None:
        """The same for an agent: those of packs read memories, those of scripts run code."""
        if agent.pack is not None:
            self.admit_pack(agent.pack)
            return
        self.admit_documents()
        if agent.source != "toml" and not _effect_open(agent.named, self.policy.settings):
            self._admit_effect(f"agent '{agent.name}'")

    def admit_pack(self, name: str, *, required: bool = False) -> None:
        """Whether this caller may use this pack. `required`: only with a key, whatever the pack's policy."""
        grant = self.grant
        if grant is not None and grant.pack in (None, name) and grant.covers(self.bank):
            return
        if self.foreign:
            raise OriginNotAllowed(
                f"{name}: web pages of other sites need a key, or their origin in [server] allowed_origins"
            )
        if required or self.policy.locked(self.policy.packs.get(name, PackPolicy(name))):
            if self.grant is not None:
                raise Unauthorized(f"{name}: this key is not valid for this pack or bank", presented=True)
            if self.policy.has_keys:
                raise Unauthorized(f"{name}: send 'Authorization: Bearer KEY'")
            raise Unauthorized(
                f"{name} needs a key: make one with 'ctx key create NAME', or set [packs.{name}] api_key_env"
            )

    def admit_log(self) -> None:
        """Whether this caller may see what clients asked: only the page itself, and programs, with a key
        where there is one. Raises `Unauthorized`, `OriginNotAllowed`.
        """
        origin = self.headers.get("origin", "").partition("://")[2]
        if self.foreign or (origin and origin.lower() != self.headers.get("host", "").lower()):
            raise OriginNotAllowed("other web pages may not read the log of calls")
        if self.policy.has_keys and (self.grant is None or not self.grant.whole):
            raise Unauthorized("send 'Authorization: Bearer KEY'", presented=self.grant is not None)

    def opens_bank(self, bank: str) -> bool:
        """Whether the caller's key opens that bank, or no key is asked of anybody."""
        return self.grant is None or self.grant.covers(bank)

    def admit_mcp(self) -> None:
        """Whether this caller may come to MCP at all, and to the pack or bank it names. Raises `NotFound`,
        `Unauthorized`.
        """
        if self.pack is not None:
            if self.pack not in self.policy.packs:
                raise NotFound(f"no memory pack called {self.pack[:64]} is enabled")
            self.admit_pack(self.pack)
            return
        if self.bank_fixed and self.bank in RESERVED_BANKS:
            raise NotFound(f"/mcp/{self.bank} is not a bank: the name is reserved")
        if self.grant is None and not self.bank_fixed and self.policy.mcp_locked():
            raise Unauthorized("send 'Authorization: Bearer KEY'")
        if self.bank is None:
            return
        if self.grant is None and self.policy.bank_locked():
            raise Unauthorized("this bank needs a key: send 'Authorization: Bearer KEY'")
        if self.grant is not None and not self.grant.covers(self.bank):
            raise Unauthorized("this key is not valid for this bank", presented=True)

    def _admit_effect(self, subject: str) -> None:
        if self.foreign and (self.grant is None or not self.grant.whole):
            raise OriginNotAllowed(
                f"web pages of other sites may not call {subject}: it is not named in the configuration, or "
                '[server] cross_site_tools is "read_only"'
            )

    def spend(self) -> None:
        """Counts one call against the caller's rate. Raises `RateLimited`."""
        if self.window is not None:
            self.window.spend(self.spender)

    def caller(self, *, pack: str | None = None) -> Caller:
        """The Caller of a call. `pack`: whose own route it came by."""
        grant = self.grant
        return Caller(
            door=self.door,
            principal=None if grant is None else grant.name,
            bank=self.bank,
            bank_fixed=self.bank_fixed,
            session_id=self.session_id,
            client=client_name(self.headers),
            request_id=self.request_id,
            pack=pack or self.pack,
            banks=None if grant is None else grant.banks,
        )


def client_name(headers: Mapping[str, str]) -> str | None:
    """What a client calls itself: the page, a program by its User-Agent, or a browser. None: a preview of the
    page, which nobody asked for.
    """
    name = headers.get("x-ctx-client") or headers.get("user-agent", "").partition("/")[0]
    if name == "preview":
        return None
    return "browser" if name == "Mozilla" else one_line(name)[:80]


def open_to_pages(tool: Tool, settings: ServerSettings) -> bool:
    """Whether a web page of any site that CORS lets in may call this tool without a key.

    What only reads, and what the operator named in the configuration; not `refresh`, nor what merely lies in
    a folder of tools.
    """
    if tool.pack is not None:
        return False
    return tool.annotations.read_only or _effect_open(tool.named, settings)


def plain_origin(origin: str) -> str:
    """An origin as two of them are compared."""
    return origin.lower().rstrip("/")


def _effect_open(named: bool, settings: ServerSettings) -> bool:
    return named and settings.cross_site_tools == "all"


def setting_doubts(
    allowed_hosts: Sequence[str], cors_origins: Sequence[str], allowed_origins: Sequence[str]
) -> list[str]:
    """Warnings about entries of these [server] lists that can never match a request."""
    lines = [
        f"[server] allowed_hosts: '{one_line(host)}' is not a host (write it as box.lan)"
        for host in allowed_hosts
        if not host_name(host)
    ]
    if "*" in allowed_origins:
        lines.append(
            "[server] allowed_origins: '*' is not allowed; list the origins that may call MCP and the "
            "memory packs, or give them a key"
        )
    lines += [
        f"[server] {key}: '{one_line(entry)}' is not an origin (write it as https://example.org)"
        for key, entries in (("cors_origins", cors_origins), ("allowed_origins", allowed_origins))
        for entry in entries
        if entry not in ("*", "null") and not _ANY_ORIGIN.fullmatch(plain_origin(entry))
    ]
    return lines


def host_name(host: str) -> str:
    """The name in a Host header or an entry of `allowed_hosts`: without port and final dot, lower case. ""
    where it is none.
    """
    match = _HOST.fullmatch(host.strip())
    return match[1].lower().rstrip(".") if match else ""
