"""Classifies files by name and media type: as prose, code or data, and as a test, an example, a change log or
a generated file (docs/ranking.md has the reasons).
"""

import re
from functools import lru_cache
from typing import NamedTuple

# Long texts of these media types are cut between sentences, and other texts between statements.
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

TEST, EXAMPLE, CHANGES, GENERATED = "test", "example", "change log", "generated"
SECONDARY = frozenset({TEST, EXAMPLE, CHANGES, GENERATED})  # files with these roles are embedded last

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
FOLDER_STEMS = frozenset({"__init__", "package-info", "index", "mod"})  # files that stand for their folder
_GENERATED_FOLDERS = frozenset({"generated", "__generated__"})
_COMPLETION_FOLDERS = frozenset({"completion", "completions"})
_SHELLS = frozenset({"", "bash", "zsh", "fish", "sh", "elv", "elvish", "nu", "ps1", "powershell"})
_GENERATED_NAME = re.compile(  # man pages in roff, and the output of common code generators
    r".*[a-z]\.[1-9]|.*\.(?:roff|man)|.*_pb2(?:_grpc)?\.pyi?|zz_generated.*"
    r"|.*[._](?:pb|min|generated|gen|g|designer)\.[a-z]{1,4}",
    re.DOTALL,
)
_RELEASE_NOTES = frozenset(  # the name of a file, or of a folder with a file for each release
    {
        "changelog", "release-notes", "release_notes", "releasenotes", "releases", "relnotes", "whatsnew",
        "whats-new", "whats_new",
    }
)  # fmt: skip
_CHANGE_STEMS = _RELEASE_NOTES | {
    "changes", "release-history", "release_history", "version-history", "version_history", "versionhistory",
    "migration-log",
}  # fmt: skip
_CHANGE_STEMS_ON_TOP = frozenset({"history", "news"})  # only in the top folder; elsewhere often other pages
_CHANGE_FOLDERS = _RELEASE_NOTES | {"changelog.d", "changelogs", "newsfragments"}
# The name may end with a version: `release-2.0.1`, `whatsnew_3`.
_CHANGE_LOG = re.compile(
    rf"changelog.*|(?:{'|'.join(_CHANGE_STEMS)})(?:[-_. ]*\d.*)?|(?:release|version)[-_. ]*\d.*", re.DOTALL
)


class Siblings(NamedTuple):
    """The properties that all files with the same folder, suffix and media type share."""

    folder: str  # the folder's name; "" for the top folder
    suffix: str  # in lower case, without the dot
    prose: bool
    code: bool
    role: str | None  # the role that the folders in the path imply


def file(path: str, media_type: str) -> tuple[str, Siblings]:
    """(a file's name without its last suffix, the properties that it shares with its siblings). The name of
    `src/flask/app.py` is `app`.
    """
    folder, _, name = path.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    if not stem:
        stem, suffix = name, ""
    return stem, _siblings(folder, suffix, media_type)


@lru_cache(4096)  # files of the same folder usually come one after the other
def _siblings(folder: str, suffix: str, media_type: str) -> Siblings:
    prose, code = is_prose(media_type), is_code(media_type)
    folders = set(folder.lower().split("/"))
    role = None
    if (code and folders & _GENERATED_FOLDERS) or (
        suffix.lower() in _SHELLS and folders & _COMPLETION_FOLDERS
    ):
        role = GENERATED
    elif prose and folders & _CHANGE_FOLDERS:
        role = CHANGES
    elif code and folders & _TEST_FOLDERS:
        role = TEST
    elif code and folders & _EXAMPLE_FOLDERS:
        role = EXAMPLE
    return Siblings(folder.rpartition("/")[2], suffix.lower(), prose, code, role)


def is_prose(media_type: str) -> bool:
    return media_type in PROSE


def is_code(media_type: str) -> bool:
    """Whether a media type is code, that is, neither prose nor data."""
    return media_type not in PROSE and media_type not in DATA


def in_family(media_type: str, family: str) -> bool:
    """Whether a media type belongs to a family. `family` is `prose`, `code` or a single media type, in any
    case.
    """
    family = family.strip().lower()
    if family == "prose":
        return is_prose(media_type)
    return is_code(media_type) if family == "code" else media_type == family


def role(stem: str, siblings: Siblings) -> str | None:
    """The role of a file: GENERATED for any file, TEST or EXAMPLE for code, CHANGES for prose; None if the
    file has no role.
    """
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


def _logs_changes(stem: str, folder: str) -> bool:
    low = stem.lower()
    if low in _CHANGE_STEMS_ON_TOP:
        return not folder or stem.isupper()
    return _CHANGE_LOG.fullmatch(low) is not None
