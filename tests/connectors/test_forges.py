"""Links to files on code hosts, and which git addresses are allowed and shown."""

import pytest

from ctx.connectors.forges import file_url, parse_remote

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        ("git@github.com:acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        ("ssh://git@github.com/acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        (
            "https://x-token:s3cret@github.com/acme/docs.git",
            "https://github.com/acme/docs/blob/main/guide/a%20b.md",
        ),
        (
            "https://gitlab.com/acme/team/docs.git",
            "https://gitlab.com/acme/team/docs/-/blob/main/guide/a%20b.md",
        ),
        (
            "http://gitea.local:3000/acme/docs",
            "http://gitea.local:3000/acme/docs/src/branch/main/guide/a%20b.md",
        ),
        ("https://bitbucket.org/acme/docs.git", "https://bitbucket.org/acme/docs/src/main/guide/a%20b.md"),
        ("https://git.sr.ht/~ann/docs", "https://git.sr.ht/~ann/docs/tree/main/item/guide/a%20b.md"),
        ("/srv/git/docs.git", None),
        ("../docs", None),
    ],
)
def test_every_forge_shows_a_file_at_its_own_address(url: str, expected: str | None) -> None:
    assert file_url(parse_remote(url), "main", SHA, b"guide/a b.md") == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:s3cret@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://ghp_abcdef@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://github.com/a/b.git?access_token=s3cret", "https://github.com/a/b.git"),
        ("ssh://git:s3cret@host:22/a/b", "ssh://git@host:22/a/b"),
    ],
)
def test_an_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    remote = parse_remote(url)
    assert remote.display == shown
    message = f"fatal: unable to access '{url}'"
    for secret in ("s3cret", "ghp_abcdef"):
        assert secret not in remote.redact(message + (f" with {secret}" if secret in url else ""))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "--upload-pack=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "https://",
        "a@-oProxyCommand=x:a",
        "https://host:99999/a",
        "https://host/a\nb",
        "$(id)@host:a",
        "ssh://host%24%28id%29/a",
    ],
)
def test_dangerous_git_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        parse_remote(url)
