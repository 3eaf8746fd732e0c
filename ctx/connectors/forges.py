"""Parse git addresses, hide their credentials, and find a file's page on the forge's website."""

import os
import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

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
_ODD_NAME = "url: a host or a user holds a letter that none has"
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


_BITBUCKET_SERVER = _Forge(("bitbucket",), "", "")  # `_bitbucket_server` builds its addresses
_FORGES = (
    _Forge(("gitlab",), "/-/blob/{ref}/{file}", "/-/commit/{revision}"),
    _Forge(("bitbucket.org",), "/src/{unparted}/{file}", "/commits/{revision}"),
    _BITBUCKET_SERVER,
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


def _check(url: str) -> None:
    if not url.strip():
        raise ValueError("url is empty")
    if url.startswith("-"):
        raise ValueError("url must not begin with a dash")
    if any(ord(char) < 32 or ord(char) == 127 for char in url):
        raise ValueError("url holds a control character")
    if _HELPER.match(url):
        raise ValueError(
            f"url: remote helpers ({url.split('::', 1)[0]}::) can run commands and are refused; "
            "use https, ssh or a path"
        )


def parse_remote(url: str) -> Remote:
    """Parse a git address or a path. Raises `ValueError` for an address that git must not use, such as
    options or commands.
    """
    _check(url)
    if "://" in url:
        return _parse_url(url)
    scp = None if is_path(url) else _SCP.fullmatch(url)
    if scp:
        return _of_scp(scp)
    path = os.path.abspath(os.path.expanduser(url))
    return Remote(path, "local", None, None, path, os.path.basename(path), ())


def _of_scp(match: re.Match[str]) -> Remote:
    if match["host"].startswith("-"):
        raise ValueError("url: a host must not begin with a dash")
    if _SHELL.search(match["host"]) or _SHELL.search(match["user"] or ""):
        raise ValueError(_ODD_NAME)
    return Remote(match[0], "ssh", match["host"].strip("[]").lower(), None, match["path"], match[0], ())


def _user(parts: SplitResult, host: str, transport: str) -> str:
    """The user in an ssh address, "" if there is none. Raises `ValueError` for an invalid name."""
    name = parts.username or ""
    if host.startswith("-") or name.startswith("-"):
        raise ValueError("url: neither host nor user may begin with a dash")
    name = name if transport == "ssh" else ""
    if any(map(_SHELL.search, (host, unquote(host), unquote(name)))):
        raise ValueError(_ODD_NAME)
    return name


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
        raise ValueError("url names no host")
    name = _user(parts, host, transport)
    user = f"{name}@" if name else ""
    display = f"{parts.scheme}://{user}{url_host(host)}{f':{port}' if port else ''}{parts.path}"
    return Remote(url, transport, host, port, unquote(parts.path), display, _secrets(parts, transport))


def _secrets(parts: SplitResult, transport: str) -> tuple[str, ...]:
    """The secrets of an address, as written and unquoted. The longest come first, so that none is replaced in
    part.
    """
    forms = {
        form
        for secret in _secret_parts(parts, transport)
        for form in (secret, unquote(secret))
        if len(form) > 2
    }
    return tuple(sorted(forms, key=len, reverse=True))


def _secret_parts(parts: SplitResult, transport: str) -> list[str]:
    secrets = [parts.password or "", parts.query, *(value for _, value in parse_qsl(parts.query))]
    if transport != "ssh":  # a token is often in place of the user
        secrets.append(parts.username or "")
    return secrets


def file_url(remote: Remote, branch: str | None, revision: str, path: bytes) -> str | None:
    """The forge's page of a file on a branch, or at the commit if there is no branch name.

    None for an unknown forge. `path` is relative to the top of the repository.
    """
    home = _home(remote)
    if home is None or (forge := _forge_of(home[0])) is None:
        return None
    ref, file = quote(branch or revision, safe="/"), quote(path, safe="/")
    if forge is _BITBUCKET_SERVER:
        return _bitbucket_server(home[1], branch, revision, file)
    names = {
        "ref": ref,
        "file": file,
        "kind": "branch" if branch else "commit",
        # A slash in the branch's name would look like the start of the path.
        "unparted": revision if "/" in ref else ref,
    }
    return home[1] + forge.file.format(**names)


def commit_url(remote: Remote, revision: str) -> str | None:
    """The forge's page of a commit; None for an unknown forge."""
    home = _home(remote)
    if home is None or (forge := _forge_of(home[0])) is None or not forge.commit:
        return None
    return home[1] + forge.commit.format(revision=revision)


def _forge_of(host: str) -> _Forge | None:
    """The first forge that matches a host."""
    for forge in _FORGES:
        if any(name == host if "." in name else name in host for name in forge.hosts):
            return forge
    return None


def _home(remote: Remote) -> tuple[str, str] | None:
    """(host, address of the repository's page); None if the address has no host or repository."""
    if remote.host is None:
        return None
    host = _SSH_HOSTS.get(remote.host, remote.host)
    port = f":{remote.port}" if remote.port and remote.transport in ("http", "https") else ""
    repository = quote(remote.path.strip("/").removesuffix(".git").strip("/"), safe="/~")
    scheme = "http" if remote.transport == "http" else "https"
    return (host, f"{scheme}://{host}{port}/{repository}") if repository else None


def _bitbucket_server(page: str, branch: str | None, revision: str, file: str) -> str | None:
    scheme, _, netloc, repository = page.split("/", 3)
    base = f"{scheme}//{netloc}"
    parts = repository.removeprefix("scm/").split("/")
    if len(parts) != 2:
        return None
    owner, name = parts
    home = f"users/{owner[1:]}" if owner.startswith("~") else f"projects/{owner}"
    ref = quote(f"refs/heads/{branch}" if branch else revision, safe="")
    return f"{base}/{home}/repos/{name}/browse/{file}?at={ref}"
