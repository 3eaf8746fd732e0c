"""Access rules: `Policy` has the rules of a server, `Access` applies them to one request, and a `Zone` is a
group of routes with the same rules.

By default any web page may call REST (CORS `*`, never with credentials); `cors_origins` and
`cross_site_tools` in `[server]` limit this. MCP, the routes of packs and the metrics are private: a web page
of another site must be listed in `allowed_origins` or send a key. Tools of memory packs are private on every
interface.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ctx.config.settings import LOOPBACK_HOSTS, Server
from ctx.errors import ConfigError, NotFound, OriginNotAllowed, Unauthorized
from ctx.http import is_everywhere, is_loopback, split_bind, url_host
from ctx.models import RESERVED_BANKS, Caller
from ctx.server import errors
from ctx.server.keys import Grant, Keys, digest
from ctx.server.keys import match as match_key
from ctx.text.strings import one_line
from ctx.tools.toolbox import Agent, Tool, Window

ACCESS = "ctx.access"  # the key of the `Access` in the ASGI scope

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::\d{1,5})?")


class PackPolicy(NamedTuple):
    """Access settings of a memory pack. `keys` are keys (not hashes) for this pack, from the environment."""

    name: str
    keys: tuple[str, ...] = ()
    key_required: bool = False  # no calls are allowed until a key is set (sekha)
    at_banks: bool = False  # answers /mcp/{bank} and requests with X-Bank-Id (hindsight)


@dataclass(kw_only=True)
class ServerSettings(Server):
    """The settings in the table `[server]` of the configuration, and settings from elsewhere.

    `api_keys` are API keys (not hashes) with access to everything.
    """

    api_keys: tuple[str, ...] = ()
    # A key with full access for other `ctx` commands of this user; it does not close the server.
    owner_key: str = ""
    packs: tuple[PackPolicy, ...] = ()
    insecure_no_auth: bool = False


def check_bind(settings: ServerSettings, ring: Keys | None = None) -> None:
    """Raises `ConfigError` if the server would be open to a network without a key."""
    if not closed(settings) or settings.api_keys or (ring is not None and ring.candidates()):
        return
    raise ConfigError(
        f'[server] bind = "{settings.bind}" accepts other machines, but there is no key. '
        "Make one with 'ctx key create NAME', or set [server] api_key_env. With --insecure-no-auth "
        "anyone who reaches the port can use the server"
    )


def closed(settings: ServerSettings) -> bool:
    """Whether every request needs a key: a server key is set, or other machines can connect.

    Keys that are only for a pack or a bank do not close the server; they protect only that pack or bank.
    """
    loopback = is_loopback(split_bind(settings.bind)[0])
    return bool(settings.api_keys) or not (loopback or settings.insecure_no_auth)


# Headers that a proxy adds. A request with one of them may come from another machine.
_PROXY_HEADERS = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip"})


class Policy:
    """The keys of a server, the rules that say which requests need a key, and `window`, which counts the
    calls of each caller.
    """

    def __init__(
        self, settings: ServerSettings, *, ring: Keys | None = None, window: Window | None = None
    ) -> None:
        self.settings = settings
        self.window = window
        host, _ = split_bind(settings.bind)
        self.loopback = is_loopback(host)
        bound = () if is_everywhere(host) else (url_host(host),)
        # The host names under which programs on this machine reach the server.
        self.own_hosts = frozenset(map(host_name, (*LOOPBACK_HOSTS, *bound)))
        self.packs: Mapping[str, PackPolicy] = {pack.name: pack for pack in settings.packs}
        self.closed = closed(settings)
        self._ring = ring
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
        """Whether banks need a key because `ctx key create` made keys."""
        return self._ring is not None and self._ring.closed

    def closed_to(self, headers: Mapping[str, str]) -> bool:
        """Whether a request needs a key for everything except the page.

        If keys were created, requests through a proxy need a key, even if the server listens only on this
        machine.
        """
        if self.closed or not self.ring_closed or not self.loopback:
            return self.closed
        elsewhere = host_name(headers.get("host", "")) not in self.own_hosts
        return elsewhere or any(name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in headers)

    def grant(self, key: str) -> Grant | None:
        """The access that a key gives; None if the key is unknown."""
        of_ring = self._ring.candidates() if self._ring else ()
        return match_key(key, (*self._owner, *self._fixed, *of_ring))

    def locked(self, pack: PackPolicy) -> bool:
        """Whether the pack's tools need a key."""
        return bool(pack.keys) or pack.key_required or self.closed or self.ring_closed or not self.loopback


# -- zones ---------------------------------------------------------------------------------------------------


class Zone(NamedTuple):
    """A group of routes, and who may call them.

    `private`: a web page of another site must be listed in `allowed_origins` or send a key; if false, CORS
    decides. `admit` raises an error for a caller that may not use these routes.
    """

    private: bool
    admit: Callable[["Access"], None] = lambda access: None
    shown: bool = False  # anybody may read these routes without a key, even on a closed server
    counted: bool = False  # every request counts against the caller's rate limit
    rpc: bool = False  # MCP: errors of a POST are in JSON-RPC format, and the path may name a bank or pack
    interface: str = "rest"


OPEN = Zone(private=False)
CALLS = Zone(private=False, counted=True)
SHOWN = Zone(private=False, shown=True)
# Used by the server's own page and by Prometheus.
PAGE = Zone(private=True, admit=lambda access: access.admit_documents())
LOG = Zone(private=True, admit=lambda access: access.admit_log())
MCP = Zone(private=True, admit=lambda access: access.admit_mcp(), rpc=True, interface="mcp")
PACK = Zone(private=True)  # each route checks its caller itself


@dataclass(slots=True)
class Access:
    """What the middlewares found out about one request, and the checks that depend on it.

    The object is stored in the ASGI scope under `ACCESS`.
    """

    policy: Policy
    request_id: str
    headers: Mapping[str, str]
    address: str = "local"  # the address of the client
    zone: Zone = OPEN
    error_body: errors.Shape = errors.body  # builds the bodies of error replies of the route
    body: bytes = b""
    closed: bool = True  # whether callers without a key are refused
    foreign: bool = False  # whether the request comes from a web page of another site
    grant: Grant | None = None
    bank: str | None = None
    bank_fixed: bool = False
    pack: str | None = None  # the pack, if the request is for a pack's own MCP endpoint
    session_id: str | None = None

    def admit(self, entry: Tool | Agent) -> None:
        """Raises `Unauthorized` or `OriginNotAllowed` if this caller may not call this tool or agent."""
        if entry.pack is not None:
            self.admit_pack(entry.pack)
            return
        self.admit_documents()
        whole = self.grant is not None and self.grant.whole
        if self.foreign and not whole and not open_to_pages(entry, self.policy.settings):
            kind = "tool" if isinstance(entry, Tool) else "agent"
            raise OriginNotAllowed(
                f"web pages of other sites may not call {kind} '{entry.name}': it is not named in the "
                'configuration, or [server] cross_site_tools is "read_only"'
            )

    def admit_documents(self) -> None:
        """Raises `Unauthorized` if this caller may not see the documents.

        On a closed server, a key that is only for a pack or a bank does not give access to documents.
        """
        grant = self.grant
        if grant is None or self.shows(None):
            return
        banks = ", ".join(sorted(grant.banks or ()))
        scope = f"the pack {grant.pack}" if grant.pack else f"memories of the bank {banks}"
        raise Unauthorized(f"this key is only for {scope}", presented=True)

    def shows(self, pack: str | None) -> bool:
        """Whether lists show this caller the tools and agents of `pack`; with None, those of no pack.

        With a key that is only for memories, lists show nothing else.
        """
        grant = self.grant
        if not self.closed or grant is None or grant.whole:
            return True
        return pack is not None and grant.pack in (None, pack)

    def admit_pack(self, name: str, *, required: bool = False) -> None:
        """Raises `Unauthorized` or `OriginNotAllowed` if this caller may not use this pack.

        With `required`, a key is needed even if the settings of the pack do not require one.
        """
        grant = self.grant
        if grant is not None and grant.pack in (None, name) and grant.covers(self.bank):
            return
        if self.foreign:
            raise OriginNotAllowed(
                f"{name}: web pages of other sites need a key, or their origin in [server] allowed_origins"
            )
        if required or self.policy.locked(self.policy.packs.get(name, PackPolicy(name))):
            if grant is not None:
                raise Unauthorized(f"{name}: this key is not valid for this pack or bank", presented=True)
            if self.policy.has_keys:
                raise Unauthorized(f"{name}: send 'Authorization: Bearer KEY'")
            raise Unauthorized(
                f"{name} needs a key: make one with 'ctx key create NAME', or set [packs.{name}] api_key_env"
            )

    def admit_log(self) -> None:
        """Raises `Unauthorized` or `OriginNotAllowed` if this caller may not see the log of calls.

        Only the server's own page and programs may see it. If the server has keys, they need a key that is
        for everything.
        """
        origin = self.headers.get("origin", "").partition("://")[2]
        if self.foreign or (origin and origin.lower() != self.headers.get("host", "").lower()):
            raise OriginNotAllowed("other web pages may not read the log of calls")
        if self.policy.has_keys and (self.grant is None or not self.grant.whole):
            raise Unauthorized("send 'Authorization: Bearer KEY'", presented=self.grant is not None)

    def admit_mcp(self) -> None:
        """Checks that this caller may use MCP, and the pack or bank that the request names.

        Raises `NotFound`, `Unauthorized`, or `OriginNotAllowed`.
        """
        if self.pack is not None:
            if self.pack not in self.policy.packs:
                raise NotFound(f"no memory pack called {self.pack[:64]} is enabled")
            self.admit_pack(self.pack)
            return
        if self.bank_fixed and self.bank in RESERVED_BANKS:
            raise NotFound(f"/mcp/{self.bank} is not a bank: the name is reserved")
        if self.grant is not None:
            if not self.grant.covers(self.bank):
                raise Unauthorized("this key is not valid for this bank", presented=True)
            return
        at_banks = [pack for pack in self.policy.packs.values() if pack.at_banks]
        if self.bank_fixed and (self.policy.ring_closed or any(map(self.policy.locked, at_banks))):
            raise Unauthorized("this bank needs a key: send 'Authorization: Bearer KEY'")
        # `/mcp` without a bank also serves these packs, so it needs a key if one of them has a key.
        if not self.bank_fixed and any(pack.keys for pack in at_banks):
            raise Unauthorized("send 'Authorization: Bearer KEY'")

    def spend(self) -> None:
        """Counts one call against the caller's rate limit. Raises `RateLimited`."""
        # Callers without a key are counted by address. At each address, web pages of other sites are counted
        # together, and apart from programs.
        keyless = f"pages at {self.address}" if self.foreign else self.address
        if self.policy.window is not None:
            self.policy.window.spend(keyless if self.grant is None else self.grant.name or "")

    def caller(self, *, pack: str | None = None) -> Caller:
        """The `Caller` to pass to tools. `pack`: the pack whose own REST route was called."""
        grant = self.grant
        return Caller(
            interface=self.zone.interface,
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
    """The name of a client, from `X-Ctx-Client` or `User-Agent`; "browser" for browsers.

    None for a preview of the page, which is not logged.
    """
    name = headers.get("x-ctx-client") or headers.get("user-agent", "").partition("/")[0]
    if name == "preview":
        return None
    return "browser" if name == "Mozilla" else one_line(name)[:80]


def open_to_pages(entry: Tool | Agent, settings: ServerSettings) -> bool:
    """Whether web pages of other sites, if CORS allows them, may call this tool or agent without a key.

    True for tools that only read, and for agents whose text is in the configuration; with `cross_site_tools`
    "all", also for scripts that the configuration names. False for `refresh`, and for other tools that are
    only files in a folder of tools.
    """
    if entry.pack is not None:
        return False
    harmless = entry.annotations.read_only if isinstance(entry, Tool) else entry.source == "toml"
    return harmless or (entry.named and settings.cross_site_tools == "all")


def plain_origin(origin: str) -> str:
    """An origin in a normal form, so that two can be compared. A path after the origin is left out."""
    return "/".join(origin.lower().split("/")[:3])


def host_name(host: str) -> str:
    """The host name in a Host header or an entry of `allowed_hosts`, in lower case, without port and final
    dot; "" if it is not valid.
    """
    match = _HOST.fullmatch(host.strip())
    return match[1].lower().rstrip(".") if match else ""
