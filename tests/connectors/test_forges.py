"""Where a forge shows a file, and what of an address may be shown."""

import pytest

from ctx.connectors.forges import file_url, parse_remote

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        ("https://github.com/acme/docs/", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        ("git@github.com:acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        ("ssh://git@github.com/acme/docs.git", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        (
            "ssh://git@ssh.github.com:443/acme/docs.git",
            "https://github.com/acme/docs/blob/main/guide/a%20b.md",
        ),
        ("git://github.com/acme/docs", "https://github.com/acme/docs/blob/main/guide/a%20b.md"),
        (
            "https://x-token:s3cret@github.com/acme/docs.git",
            "https://github.com/acme/docs/blob/main/guide/a%20b.md",
        ),
        (
            "https://gitlab.com/acme/team/docs.git",
            "https://gitlab.com/acme/team/docs/-/blob/main/guide/a%20b.md",
        ),
        ("git@gitlab.com:acme/team/docs.git", "https://gitlab.com/acme/team/docs/-/blob/main/guide/a%20b.md"),
        (
            "https://gitlab.acme.org:8443/docs.git",
            "https://gitlab.acme.org:8443/docs/-/blob/main/guide/a%20b.md",
        ),
        (
            "ssh://git@gitlab.acme.org:2222/a/docs.git",
            "https://gitlab.acme.org/a/docs/-/blob/main/guide/a%20b.md",
        ),
        (
            "http://gitea.local:3000/acme/docs",
            "http://gitea.local:3000/acme/docs/src/branch/main/guide/a%20b.md",
        ),
        ("git@codeberg.org:acme/docs.git", "https://codeberg.org/acme/docs/src/branch/main/guide/a%20b.md"),
        ("https://bitbucket.org/acme/docs.git", "https://bitbucket.org/acme/docs/src/main/guide/a%20b.md"),
        (
            "https://bitbucket.acme.org/scm/ENG/docs.git",
            "https://bitbucket.acme.org/projects/ENG/repos/docs/browse/guide/a%20b.md?at=refs%2Fheads%2Fmain",
        ),
        (
            "ssh://git@bitbucket.acme.org:7999/~ann/docs.git",
            "https://bitbucket.acme.org/users/ann/repos/docs/browse/guide/a%20b.md?at=refs%2Fheads%2Fmain",
        ),
        ("https://git.sr.ht/~ann/docs", "https://git.sr.ht/~ann/docs/tree/main/item/guide/a%20b.md"),
        ("https://git.acme.org/docs.git", None),
        ("/srv/git/docs.git", None),
        ("file:///srv/git/docs.git", None),
        ("../docs", None),
    ],
)
def test_every_forge_shows_a_file_at_its_own_address(url: str, expected: str | None) -> None:
    assert file_url(parse_remote(url), "main", SHA, b"guide/a b.md") == expected


def test_names_and_branches_are_escaped_whatever_their_bytes() -> None:
    remote = parse_remote("git@github.com:acme/docs.git")
    assert (
        file_url(remote, "feature/ä#1", SHA, b"\xff?#%.md")
        == "https://github.com/acme/docs/blob/feature/%C3%A4%231/%FF%3F%23%25.md"
    )


def test_a_commit_stands_in_where_there_is_no_branch() -> None:
    assert (
        file_url(parse_remote("https://github.com/a/b"), None, SHA, b"c.md")
        == f"https://github.com/a/b/blob/{SHA}/c.md"
    )
    assert (
        file_url(parse_remote("https://codeberg.org/a/b"), None, SHA, b"c.md")
        == f"https://codeberg.org/a/b/src/commit/{SHA}/c.md"
    )
    assert (
        file_url(parse_remote("https://bitbucket.org/a/b"), "x/y", SHA, b"c.md")
        == f"https://bitbucket.org/a/b/src/{SHA}/c.md"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:s3cret@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://ghp_abcdef@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://github.com/a/b.git?access_token=s3cret", "https://github.com/a/b.git"),
        ("ssh://git:s3cret@host:22/a/b", "ssh://git@host:22/a/b"),
        ("git@host:a/b", "git@host:a/b"),
        ("/home/ann/b", "b"),
    ],
)
def test_an_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    remote = parse_remote(url)
    assert remote.display == shown
    message = f"fatal: unable to access '{url}'"
    for secret in ("s3cret", "ghp_abcdef"):
        assert secret not in remote.redact(message + (f" with {secret}" if secret in url else ""))


def test_an_escaped_secret_is_hidden_in_both_its_forms() -> None:
    remote = parse_remote("https://ann:p%40ss@host/a")
    assert (
        remote.redact("bad password p@ss (p%40ss) at https://other:one@host/a")
        == "bad password *** (***) at https://host/a"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "--upload-pack=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "transport::address",
        "ftp://host/a",
        "javascript://x",
        "https://",
        "ssh://-oProxyCommand=x/a",
        "-oProxyCommand=x:a",
        "a@-oProxyCommand=x:a",
        "ssh://-oProxyCommand=x@host/a",
        "https://host:99999/a",
        "https://host/a\nb",
        "git@`touch${IFS}x`:a",
        "$(id)@host:a",
        "a;id:b",
        "ssh://h$(id)/a",
        "ssh://host%24%28id%29/a",
        "ssh://u%60id%60@host/a",
    ],
)
def test_what_git_must_not_be_given_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        parse_remote(url)
