"""Classifies files by name and media type: as prose, code or data, and as a test, an example, a change log or
a generated file (docs/ranking.md has the reasons).
"""

import re

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
# Names of files that represent their folder.
FOLDER_STEMS = frozenset({"__init__", "package-info", "index", "mod"})
_GENERATED_FOLDERS = frozenset({"generated", "__generated__"})
_COMPLETION_FOLDERS = frozenset({"completion", "completions"})
_SHELLS = frozenset({"", "bash", "zsh", "fish", "sh", "elv", "elvish", "nu", "ps1", "powershell"})
_GENERATED_NAME = re.compile(  # names of man pages in roff, and of files that common code generators write
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
# Change logs only in the top folder; elsewhere these names are often other pages.
_CHANGE_STEMS_ON_TOP = frozenset({"history", "news"})
_CHANGE_FOLDERS = _RELEASE_NOTES | {"changelog.d", "changelogs", "newsfragments"}
# The name may end with a version: `release-2.0.1`, `whatsnew_3`.
_CHANGE_LOG = re.compile(
    rf"changelog.*|(?:{'|'.join(_CHANGE_STEMS)})(?:[-_. ]*\d.*)?|(?:release|version)[-_. ]*\d.*", re.DOTALL
)


def name_parts(path: str) -> tuple[str, str, str]:
    """(name of the folder, name without the last suffix, suffix in lower case) of a file. The folder is "" at
    the top. `src/flask/app.py` gives flask, app and py.
    """
    folders, _, name = path.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    if not stem:
        stem, suffix = name, ""
    return folders.rpartition("/")[2], stem, suffix.lower()


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


def role(path: str, media_type: str) -> str | None:
    """The role of a file: GENERATED for any file, TEST or EXAMPLE for code, CHANGES for prose; None if the
    file has no role.
    """
    folder, stem, suffix = name_parts(path)
    low, folders, code = stem.lower(), set(path.lower().split("/")[:-1]), is_code(media_type)
    if (code and folders & _GENERATED_FOLDERS) or _GENERATED_NAME.fullmatch(f"{low}.{suffix}"):
        return GENERATED
    if suffix in _SHELLS and ("completion" in low or folders & _COMPLETION_FOLDERS):
        return GENERATED
    if is_prose(media_type):
        return CHANGES if folders & _CHANGE_FOLDERS or _logs_changes(stem, folder) else None
    if not code:
        return None
    if (
        low.startswith(_TEST_BEGINNINGS)
        or low.endswith(_TEST_ENDINGS)
        or low in ("conftest", "tests")
        or _TEST_HUMP.search(stem)
        or folders & _TEST_FOLDERS
    ):
        return TEST
    return EXAMPLE if folders & _EXAMPLE_FOLDERS else None


def _logs_changes(stem: str, folder: str) -> bool:
    low = stem.lower()
    if low in _CHANGE_STEMS_ON_TOP:
        return not folder or stem.isupper()
    return _CHANGE_LOG.fullmatch(low) is not None
