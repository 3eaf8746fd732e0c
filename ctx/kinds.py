"""What a file is, told by its name and media type: prose, code or data; a test, an example, a list of
exports, a change log.

Pure: names in, kinds out, without a pattern, since every candidate of every search is asked (docs/ranking.md
has the reasons).
"""

from functools import lru_cache

# Of the formats that are read (ctx/formats/table.py, which a search would wait for). A long text of these is
# cut at sentences, not at statements.
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
    }
)  # fmt: skip
DATA = frozenset(
    {
        "application/json", "application/jsonl", "application/xml", "application/yaml", "application/toml",
        "image/svg+xml", "text/csv", "text/tab-separated-values", "text/x-ini", "text/x-properties",
        "text/x-lock", "text/x-diff",
    }
)  # fmt: skip
FAMILIES = ("prose", "code")  # what `type` of a search may name beside a media type

TEST, EXAMPLE, EXPORTS, CHANGES = "test", "example", "exports", "change log"

_TEST_FOLDERS = frozenset({"test", "tests", "spec", "specs", "__tests__", "e2e", "testdata", "fixtures"})
_TEST_BEGINNINGS = ("test_", "test-", "tests_", "spec_")
_TEST_ENDINGS = ("_test", "-test", ".test", "_tests", "_spec", "-spec", ".spec", ".cy", ".stories")
_TEST_HUMPS = ("Test", "Tests", "TestCase", "Spec", "IT")  # FooTest.java, BarSpec.scala
_EXAMPLE_FOLDERS = frozenset(
    {
        "example", "examples", "sample", "samples", "demo", "demos", "tutorial", "tutorials", "docs_src",
        "benchmark", "benchmarks", "bench", "compat", "legacy", "deprecated", "_vendor", "vendor",
        "third_party",
    }
)  # fmt: skip
_EXPORT_STEMS = frozenset({"__init__", "package-info", "index", "mod"})
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
# Of a version that the name ends in: `release-2.0.1`, `whatsnew_3`.
_CHANGE_STEMS_NUMBERED = _CHANGE_STEMS | {"release", "version"}
_CHANGE_BEGINNINGS = tuple(_CHANGE_STEMS_NUMBERED)  # that it has none is told of most names at once


# A path in the parts that its rules look at: the folders from the top, the file without its last suffix, and
# that.
Place = tuple[tuple[str, ...], str, str]


def place(path: str) -> Place:
    """`src/flask/app.py` is the stem `app` with `py` in the folders `src` and `flask`."""
    folder, _, name = path.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    return (_folders(folder), stem, suffix) if stem else (_folders(folder), name, "")


@lru_cache(4096)  # files come by folders: what these say is said once
def _folders(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")) if path else ()


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


def role(file: Place, media_type: str) -> str | None:
    """What a file is beside its subject: TEST, EXAMPLE or EXPORTS of code, CHANGES of prose; None where it is
    its subject.

    A folder of prose may be called `spec` or `testing` and is none of these.
    """
    if media_type in PROSE:
        return CHANGES if _logs_changes(file) else None
    return None if media_type in DATA else _role_of_code(file)


def _role_of_code(file: Place) -> str | None:
    folders, stem, _ = file
    low = stem.lower()
    if (
        low.startswith(_TEST_BEGINNINGS)
        or low.endswith(_TEST_ENDINGS)
        or low in ("conftest", "tests")
        or _ends_in_hump(stem)
    ):
        return TEST
    return _role_of_folders(folders) or (EXPORTS if low in _EXPORT_STEMS else None)


@lru_cache(4096)
def _role_of_folders(folders: tuple[str, ...]) -> str | None:
    """What all code below is, told by the folders it lies in."""
    low = set(map(str.lower, folders))
    if not _TEST_FOLDERS.isdisjoint(low):
        return TEST
    return None if _EXAMPLE_FOLDERS.isdisjoint(low) else EXAMPLE


def _ends_in_hump(stem: str) -> bool:
    """Whether a name in humps ends in one that tests bear (`ParserTest`, but neither `latest` nor `Test`)."""
    for hump in _TEST_HUMPS:
        before = stem[: -len(hump)]
        if before and stem.endswith(hump) and (before[-1].islower() or before[-1].isdigit()):
            return True
    return False


def _logs_changes(file: Place) -> bool:
    folders, stem, _ = file
    low = stem.lower()
    if low.startswith(_CHANGE_BEGINNINGS) and (
        low in _CHANGE_STEMS or low.startswith("changelog") or _before_number(low) in _CHANGE_STEMS_NUMBERED
    ):
        return True
    if low in _CHANGE_STEMS_ON_TOP:
        return not folders or stem.isupper()
    return _of_changes(folders)


def _before_number(stem: str) -> str:
    """What stands before the first digit of a name; "" where it has none."""
    first = next((i for i, char in enumerate(stem) if char.isdigit()), 0)
    return stem[:first].rstrip("-_. ")


@lru_cache(4096)
def _of_changes(folders: tuple[str, ...]) -> bool:
    return not _CHANGE_FOLDERS.isdisjoint(map(str.lower, folders))
