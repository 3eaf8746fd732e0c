"""Parse git addresses, hide their credentials, find a file's page on the forge's website, and check where a
submodule may be fetched from.
"""

import os
import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

from ctx.http import url_host

TRANSPORTS = {
    "file": "file",
    "http": "http",
    "https": "https",
    "git": "git",
    "ssh": "ssh",
    "git+ssh": "ssh",
    "ssh+git": "ssh",
}
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_SCP = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>\[[^\]/]+\]|[^:/\[\]@]+):(?P<path>.*)", re.DOTALL)
# Characters with a meaning in a shell: the `ProxyCommand` of a user's ssh gets the host and the user.
_SHELL = re.compile(r"""[\s'"`$\\;&<>|(){}!*?#^]""")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_ODD_NAME = "url: the host or the user contains a character that is not allowed"
_SSH_HOSTS = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


class _Forge(NamedTuple):
    """The addresses of a file's and a commit's page, relative to the repository's page. `hosts` are the names
    of the forge's hosts, or parts of them (without a dot).
    """

    hosts: tuple[str, ...]
    file: str
    commit: str


_FORGES = (
    _Forge(("gitlab",), "/-/blob/{ref}/{file}", "/-/commit/{revision}"),
    _Forge(("bitbucket.org",), "/src/{unparted}/{file}", "/commits/{revision}"),
    _Forge(("gitea", "codeberg", "forgejo"), "/src/{kind}/{ref}/{file}", "/commit/{revision}"),
    _Forge(("github",), "/blob/{ref}/{file}", "/commit/{revision}"),
    _Forge(("git.sr.ht",), "/tree/{ref}/item/{file}", "/commit/{revision}"),
)


class Remote(NamedTuple):
    """An address that git can fetch from. `url` may contain credentials; `display` has none."""

    url: str
    transport: str  # local | file | http | https | ssh | git
    host: str | None
    port: int | None
    path: str
    display: str
    secrets: tuple[str, ...]

    @property
    def confidential(self) -> bool:
        """Whether the address contains a password or a token, even one too short to redact."""
        if "://" not in self.url or self.transport == "file":
            return False
        return any(_secret_parts(urlsplit(self.url), self.transport))

    @property
    def is_cut(self) -> bool:
        """Whether the remote is a shallow repository on this machine (`git clone --depth`)."""
        if self.transport not in ("local", "file"):
            return False
        return any(os.path.exists(os.path.join(self.path, folder, "shallow")) for folder in ("", ".git"))

    def redact(self, text: str) -> str:
        """The text without the credentials, and without the user part of any address in it."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return _USERINFO.sub("", text)


def is_path(url: str) -> bool:
    """Whether an address without a transport is a path, and not `user@host:path`. A path may contain a
    colon.
    """
    return "://" not in url and (url.startswith(("/", ".", "~")) or _SCP.fullmatch(url) is None)


def parse_remote(url: str) -> Remote:
    """Parse a git address or a path. Raises `ValueError` for an address that git must not use, such as
    options or commands.
    """
    if not url.strip():
        raise ValueError("url is empty")
    if url.startswith("-"):
        raise ValueError("url must not begin with a dash")
    if any(ord(char) < 32 or ord(char) == 127 for char in url):
        raise ValueError("url contains a control character")
    if _HELPER.match(url):
        raise ValueError(
            f"url: remote helpers ({url.split('::', 1)[0]}::) are refused, because they can run commands. "
            "Use https, ssh or a path"
        )
    if "://" in url:
        return _parse_url(url)
    match = None if is_path(url) else _SCP.fullmatch(url)
    if match is None:
        path = os.path.abspath(os.path.expanduser(url))
        return Remote(path, "local", None, None, path, os.path.basename(path), ())
    if match["host"].startswith("-"):
        raise ValueError("url: a host must not begin with a dash")
    if _SHELL.search(match["host"]) or _SHELL.search(match["user"] or ""):
        raise ValueError(_ODD_NAME)
    return Remote(match[0], "ssh", match["host"].strip("[]").lower(), None, match["path"], match[0], ())


def _parse_url(url: str) -> Remote:
    scheme = url.split("://", 1)[0].lower()
    if scheme not in TRANSPORTS:
        raise ValueError(
            f"url: unknown transport {scheme!r} (known: {', '.join(TRANSPORTS)}, user@host:path, a path)"
        )
    transport = TRANSPORTS[scheme]
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"url: {error}") from error
    if transport == "file":
        path = unquote("/" + url.split("://", 1)[1].partition("/")[2])
        return Remote(url, "file", None, None, path, os.path.basename(path.rstrip("/")) or "file", ())
    if not host:
        raise ValueError("url has no host")
    name = parts.username or ""
    if host.startswith("-") or name.startswith("-"):
        raise ValueError("url: the host and the user must not begin with a dash")
    name = name if transport == "ssh" else ""
    if any(map(_SHELL.search, (host, unquote(host), unquote(name)))):
        raise ValueError(_ODD_NAME)
    user = f"{name}@" if name else ""
    display = f"{parts.scheme}://{user}{url_host(host)}{f':{port}' if port else ''}{parts.path}"
    secrets = _secret_parts(parts, transport)
    forms = {form for secret in secrets for form in (secret, unquote(secret)) if len(form) > 2}
    # The longest first, so that a secret that contains another one is replaced as a whole.
    longest_first = tuple(sorted(forms, key=len, reverse=True))
    return Remote(url, transport, host, port, unquote(parts.path), display, longest_first)


def _secret_parts(parts: SplitResult, transport: str) -> list[str]:
    secrets = [parts.password or "", parts.query, *(value for _, value in parse_qsl(parts.query))]
    if transport != "ssh":  # a token is often in place of the user
        secrets.append(parts.username or "")
    return secrets


def file_url(remote: Remote, branch: str | None, revision: str, path: bytes) -> str | None:
    """The forge's page of a file on a branch, or at the commit if there is no branch name.

    None for an unknown forge. `path` is relative to the top of the repository.
    """
    page, forge = _home(remote)
    if forge is None:
        return None
    ref, file = quote(branch or revision, safe="/"), quote(path, safe="/")
    names = {
        "ref": ref,
        "file": file,
        "kind": "branch" if branch else "commit",
        # A slash in the branch's name would look like the start of the path.
        "unparted": revision if "/" in ref else ref,
    }
    return page + forge.file.format(**names)


def commit_url(remote: Remote, revision: str) -> str | None:
    """The forge's page of a commit; None for an unknown forge."""
    page, forge = _home(remote)
    return page + forge.commit.format(revision=revision) if forge else None


def _home(remote: Remote) -> tuple[str, _Forge | None]:
    """The address of the repository's page, and its forge: the first that matches the host. None for an
    unknown forge, or if the address has no host or repository.
    """
    host = _SSH_HOSTS.get(remote.host or "", remote.host or "")
    port = f":{remote.port}" if remote.port and remote.transport in ("http", "https") else ""
    repository = quote(remote.path.strip("/").removesuffix(".git").strip("/"), safe="/~")
    scheme = "http" if remote.transport == "http" else "https"
    for forge in _FORGES if host and repository else ():
        if any(name == host if "." in name else name in host for name in forge.hosts):
            return f"{scheme}://{host}{port}/{repository}", forge
    return "", None


# -- submodules ----------------------------------------------------------------------------------------------
# A stranger may have written the address of a submodule, so a submodule is read only from the repository's
# own host and port and with an equally safe transport. A submodule of a repository on this machine is read
# only from a folder next to the repository.

_OPEN = {"http": 80, "git": 9418}  # transports without encryption, and their ports
_SAFE = {"https": 443, "ssh": 22}
_PORT = re.compile(r":\d*\Z")


class Submodule(NamedTuple):
    """A folder whose content is the commit `oid` of another repository."""

    path: str  # from the top of the outer repository
    oid: str
    url: str | None  # from `.gitmodules`; None if it is missing there


def listed_submodules(settings: bytes, links: Mapping[str, str]) -> list[Submodule]:
    """Returns the submodules in `links` (path -> commit), sorted by path. Their addresses come from
    `settings`, the output of `git config -z --list` for `.gitmodules`.
    """
    paths: dict[str, str] = {}
    urls: dict[str, str] = {}
    for row in settings.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = row.partition("\n")
        section, _, name = key.partition(".")
        if section == "submodule" and name.endswith(".path"):
            paths[value] = name.removesuffix(".path")
        elif section == "submodule" and name.endswith(".url"):
            urls[name.removesuffix(".url")] = value
    return [Submodule(path, oid, urls.get(paths.get(path, ""))) for path, oid in sorted(links.items())]


def address_of(submodule: Submodule, outer: Remote) -> str:
    """The address to fetch a submodule from. Raises `ValueError` with the reason if it must not be read."""
    url = submodule.url
    if not url:
        raise ValueError("`.gitmodules` has no address for it")
    if url.startswith(("./", "../")):
        return _beside(url, outer)
    remote = parse_remote(url)
    if remote.host is None or remote.host != outer.host:
        raise ValueError("it is on another host than the repository. Add it as a source to read it")
    # Another port may be another server, which must not get the user's password for this host.
    if remote.port not in (None, (_OPEN | _SAFE)[remote.transport], outer.port):
        raise ValueError("it is on another port than the repository. Add it as a source to read it")
    if remote.transport in _OPEN and outer.transport in _SAFE:
        parts = urlsplit(url)
        if remote.port not in (None, _OPEN[remote.transport]):
            raise ValueError("its address is not encrypted, but that of the repository is")
        return urlunsplit(parts._replace(scheme="https", netloc=_PORT.sub("", parts.netloc)))
    return url


def _beside(url: str, outer: Remote) -> str:
    """Resolve an address that is relative to the address of the outer repository."""
    if outer.host is None:
        path = posixpath.normpath(posixpath.join(outer.path, url))
        if posixpath.dirname(path) != posixpath.dirname(posixpath.normpath(outer.path)):
            raise ValueError("it is not next to the repository. Add it as a source to read it")
        return path
    if "://" in outer.url:
        parts = urlsplit(outer.url)
        return urlunsplit(parts._replace(path=_within(parts.path.rstrip("/"), url)))
    head, _, path = outer.url.partition(":")  # user@host:path
    return f"{head}:{_within('/' + path.strip('/'), url).lstrip('/')}"


def _within(path: str, url: str) -> str:
    joined = posixpath.normpath(posixpath.join(path, url))
    if joined in ("/", "."):
        raise ValueError("its relative address has too many `..`")
    return joined
