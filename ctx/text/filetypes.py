"""The kind of a file by its name and media type: prose, code or data; a test, an example, a change log,
a generated file (docs/ranking.md has the reasons).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# A long text of these types is cut at sentences, not at statements.
PROSE = frozenset(
    {
        "text/markdown", "text/x-rst", "text/html", "text/x-org", "text/asciidoc", "text/x-tex", "text/plain",
        "application/x-ipynb+json", "application/pdf", "application/epub+zip", "application/mbox",
        "message/rfc822",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.oasis.opendocument.presentation",
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.ms-excel.sheet.binary.macroenabled.12",
        "application/vnd.ms-excel", "application/rtf",
    }
)  # fmt: skip
DATA = frozenset(
    {
        "application/json", "application/jsonl", "application/xml", "application/yaml", "application/toml",
        "image/svg+xml", "text/csv", "text/tab-separated-values", "text/x-ini", "text/x-properties",
        "text/x-lock", "text/x-diff",
    }
)  # fmt: skip
FAMILIES = ("prose", "code")  # also accepted by `type` of a search, besides media types

TEST, EXAMPLE, CHANGES, GENERATED = "test", "example", "change log", "generated"
SECONDARY = frozenset({TEST, EXAMPLE, CHANGES, GENERATED})  # embedded last

_TEST_FOLDERS = frozenset({"test", "tests", "spec", "specs", "__tests__", "e2e", "testdata", "fixtures"})
_TEST_BEGINNINGS = ("test_", "test-", "tests_", "spec_")
_TEST_ENDINGS = ("_test", "-test", ".test", "_tests", "_spec", "-spec", ".spec", ".cy", ".stories")
_TEST_HUMP = re.compile(r"[a-z\d](?:Test|Tests|TestCase|Spec|IT)$")  # FooTest.java, BarSpec.scala
_EXAMPLE_FOLDERS = frozenset(
    {
        "example", "examples", "sample", "samples", "demo", "demos", "tutorial", "tutorials", "docs_src",
        "benchmark", "benchmarks", "bench", "compat", "legacy", "deprecated", "_vendor", "vendor",
        "third_party",
    }
)  # fmt: skip
FOLDER_STEMS = frozenset({"__init__", "package-info", "index", "mod"})  # files called after their folder
_GENERATED_FOLDERS = frozenset({"generated", "__generated__"})
_COMPLETION_FOLDERS = frozenset({"completion", "completions"})
_SHELLS = frozenset({"", "bash", "zsh", "fish", "sh", "elv", "elvish", "nu", "ps1", "powershell"})
_GENERATED_NAME = re.compile(  # man pages in roff, and what common generators write
    r".*[a-z]\.[1-9]|.*\.(?:roff|man)|.*_pb2(?:_grpc)?\.pyi?|zz_generated.*"
    r"|.*[._](?:pb|min|generated|gen|g|designer)\.[a-z]{1,4}",
    re.DOTALL,
)
_RELEASE_NOTES = frozenset(  # as a file or as a folder of one for each release
    {
        "changelog", "release-notes", "release_notes", "releasenotes", "releases", "relnotes", "whatsnew",
        "whats-new", "whats_new",
    }
)  # fmt: skip
_CHANGE_STEMS = _RELEASE_NOTES | {
    "changes", "release-history", "release_history", "version-history", "version_history", "versionhistory",
    "migration-log",
}  # fmt: skip
_CHANGE_STEMS_ON_TOP = frozenset({"history", "news"})  # below the top they are pages about other things
_CHANGE_FOLDERS = _RELEASE_NOTES | {"changelog.d", "changelogs", "newsfragments"}
# Also with a version at the end: `release-2.0.1`, `whatsnew_3`.
_CHANGE_LOG = re.compile(
    rf"changelog.*|(?:{'|'.join(_CHANGE_STEMS)})(?:[-_. ]*\d.*)?|(?:release|version)[-_. ]*\d.*", re.DOTALL
)


class Siblings(NamedTuple):
    """Properties that files of the same folder, suffix and media type share."""

    folder: str  # its name; "" at the top
    suffix: str  # in lower case, without its dot
    prose: bool
    code: bool
    role: str | None  # from their folders


def file(path: str, media_type: str) -> tuple[str, Siblings]:
    """A file's name without its last suffix (`app` of `src/flask/app.py`), and its folder's properties."""
    folder, _, name = path.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    if not stem:
        stem, suffix = name, ""
    return stem, _siblings(folder, suffix, media_type)


@lru_cache(4096)  # files come by folders: what these say is said once
def _siblings(folder: str, suffix: str, media_type: str) -> Siblings:
    folders = folder.split("/")
    prose, code = media_type in PROSE, is_code(media_type)
    role = _role_of_prose(folders) if prose else _role_of_code(folders) if code else None
    low = set(map(str.lower, folders))
    if not _GENERATED_FOLDERS.isdisjoint(low) and code:
        role = GENERATED
    if not _COMPLETION_FOLDERS.isdisjoint(low) and suffix.lower() in _SHELLS:
        role = GENERATED
    return Siblings(folders[-1], suffix.lower(), prose, code, role)


def is_prose(media_type: str) -> bool:
    return media_type in PROSE


def is_code(media_type: str) -> bool:
    """Whether it is neither prose nor data."""
    return media_type not in PROSE and media_type not in DATA


def in_family(media_type: str, family: str) -> bool:
    """Whether a media type is of a family (`prose`, `code`), or is the type named."""
    if family == "prose":
        return is_prose(media_type)
    return is_code(media_type) if family == "code" else media_type == family.lower()


def role(stem: str, siblings: Siblings) -> str | None:
    """GENERATED for any, TEST or EXAMPLE for code, CHANGES for prose; None for any other file."""
    low = stem.lower()
    if siblings.role == GENERATED or _GENERATED_NAME.fullmatch(f"{low}.{siblings.suffix}"):
        return GENERATED
    if "completion" in low and siblings.suffix in _SHELLS:
        return GENERATED
    if siblings.prose:
        return CHANGES if siblings.role or _logs_changes(stem, siblings.folder) else None
    if not siblings.code:
        return None
    if (
        low.startswith(_TEST_BEGINNINGS)
        or low.endswith(_TEST_ENDINGS)
        or low in ("conftest", "tests")
        or _TEST_HUMP.search(stem)
    ):
        return TEST
    return siblings.role


def _role_of_code(folders: Sequence[str]) -> str | None:
    """The role that folders give all code in them."""
    low = set(map(str.lower, folders))
    if not _TEST_FOLDERS.isdisjoint(low):
        return TEST
    return None if _EXAMPLE_FOLDERS.isdisjoint(low) else EXAMPLE


def _role_of_prose(folders: Sequence[str]) -> str | None:
    return None if _CHANGE_FOLDERS.isdisjoint(map(str.lower, folders)) else CHANGES


def _logs_changes(stem: str, folder: str) -> bool:
    low = stem.lower()
    if low in _CHANGE_STEMS_ON_TOP:
        return not folder or stem.isupper()
    return _CHANGE_LOG.fullmatch(low) is not None
