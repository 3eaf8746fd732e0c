"""The keyword index: what a query finds, in which order, and after a kill."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import tantivy

from ctx.code.symbols import definitions
from ctx.models import Chunk, Document, Filters, Hit
from ctx.store.record import StoredDocument
from ctx.store.tantivy import MAX_TERMS, KeywordIndex
from ctx.text import analyze

ROOT = Path(__file__).parent.parent.parent
ALL = Filters()


def stored(
    number: int,
    *texts: str,
    source: str = "filesystem",
    source_id: str | None = None,
    title: str | None = None,
    headings: tuple[str, ...] = (),
    updated_ms: int = 1_000,
    first_chunk_no: int | None = None,
    media_type: str = "text/markdown",
) -> StoredDocument:
    """A document whose chunks are `texts`, numbered from 1000 times its own number."""
    source_id = source_id or f"{number}.md"
    body = "\n\n".join(texts)
    chunks = []
    start = 0
    for ordinal, text in enumerate(texts):
        heading = headings[ordinal] if ordinal < len(headings) else ""
        first_line = body.count("\n", 0, start) + 1
        last_line = first_line + text.count("\n")
        chunks.append(Chunk(ordinal, start, start + len(text), first_line, last_line, heading, b""))
        start += len(text) + 2
    document = Document(
        f"id-{number}", source, source_id, title or source_id.rsplit("/", 1)[-1].rsplit(".", 1)[0], body,
        media_type,
        updated_ms, "print", b"hash",
        definitions=() if media_type == "text/markdown" else tuple(definitions(body, media_type) or ()),
    )  # fmt: skip
    first = number * 1000 if first_chunk_no is None else first_chunk_no
    return StoredDocument(number, 1, document, tuple(chunks), tuple(range(first, first + len(chunks))))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[KeywordIndex]:
    opened = KeywordIndex(str(tmp_path / "keyword"), writable=True)
    yield opened
    opened.close()


def put(index: KeywordIndex, *documents: StoredDocument) -> None:
    for document in documents:
        index.add(document)
    index.commit()


def numbers(index: KeywordIndex, query: str, filters: Filters = ALL, k: int = 50) -> list[int]:
    return [hit.document_no for hit in index.search(query, filters, k)]


def test_any_of_the_words_is_enough_and_more_of_them_rank_higher(index: KeywordIndex) -> None:
    put(index, stored(1, "otters swim"), stored(2, "otters swim in rivers"), stored(3, "trains run on rails"))
    assert numbers(index, "otter river") == [2, 1]
    assert numbers(index, "otter locomotive") == [1, 2]
    assert numbers(index, "locomotive") == []


def test_all_words_in_one_passage_beat_one_word_said_often(index: KeywordIndex) -> None:
    put(
        index,
        stored(1, "docker " * 12 + "is a tool"),
        stored(2, "a docker volume is kept apart and has its own life " * 3),
    )
    assert numbers(index, "docker volume")[0] == 2


def test_a_word_is_found_in_title_heading_and_path(index: KeywordIndex) -> None:
    put(
        index,
        stored(1, "nothing", title="Authentication Guide"),
        stored(2, "nothing", headings=("Operations > Rotating tokens",)),
        stored(3, "nothing", source_id="deploy/kubernetes/helm-chart.yaml"),
    )
    assert numbers(index, "authenticate") == [1]
    assert numbers(index, "token rotation") == [2]
    assert numbers(index, "kubernetes") == numbers(index, "chart") == [3]


def test_an_identifier_is_found_whole_and_by_parts(index: KeywordIndex) -> None:
    put(
        index,
        stored(1, "def get_user_name(row): ..."),
        stored(2, "function getUserName(row) {}"),
        stored(3, "the user has a name to get"),
    )
    assert set(numbers(index, "user name")) == {1, 2, 3}
    assert set(numbers(index, "getUserName")[:2]) == {1, 2}
    assert set(numbers(index, "get_user_name")[:2]) == {1, 2}


def test_a_quoted_phrase_ranks_where_its_words_stand_side_by_side(index: KeywordIndex) -> None:
    put(
        index,
        stored(1, "layer control of the boundary, and a layer of control, boundary control"),
        stored(2, "the boundary layer control of a wing in a wind tunnel with other matters told at length"),
    )
    assert numbers(index, 'on "boundary layer control"') == [2, 1]
    assert numbers(index, '"boundary layer control"') == [2], "quotes around all of it mean just that"


def test_ideographs_within_a_run_are_found(index: KeywordIndex) -> None:
    put(
        index, stored(1, "我喜歡在北京吃烤鴨"), stored(2, "日本語の全文検索エンジン"), stored(3, "Python入門")
    )
    assert numbers(index, "烤鴨") == [1]
    assert numbers(index, "検索") == [2]
    assert numbers(index, "python") == [3]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "(",
        "a AND",
        "NOT",
        "title:x",
        "foo:bar:baz",
        "*",
        "a*",
        "~1",
        "[1 TO 2",
        "\\",
        "+ -",
        "a^b",
        "'",
        "IN [",
        "\0",
        "\ud800",
        "ß\u0301",
    ],
)
def test_no_text_is_a_syntax_error(index: KeywordIndex, query: str) -> None:
    put(index, stored(1, "a foo bar"))
    index.search(query, ALL, 5)


def test_a_passage_spans_neighbouring_chunks(index: KeywordIndex) -> None:
    put(index, stored(7, "first the heron", "then the vole", "last the badger"))
    assert index.search("heron badger", ALL, 5) == [
        Hit(7000, 7, index.search("heron badger", ALL, 5)[0].score, 3)
    ]


def test_a_pasted_page_asks_for_its_rarest_words_only(index: KeywordIndex) -> None:
    common = " ".join(f"common{number}" for number in range(100))
    put(index, *(stored(number, common) for number in range(1, 20)), stored(20, f"{common} kingfisher"))
    assert numbers(index, f"{common} kingfisher")[0] == 20
    assert len(analyze.query_terms(common)) > MAX_TERMS
    assert numbers(index, " ".join(f"unknown{number}" for number in range(100))) == []


def test_the_index_has_exactly_the_terms_of_the_analyzer(index: KeywordIndex, tmp_path: Path) -> None:
    """tantivy cuts the words itself; other stores are given `analyze.terms`. Both must come to the same."""
    texts = [
        path.read_text(encoding="utf-8")
        for folder in ("ctx", "docs")
        for path in sorted((ROOT / folder).rglob("*.[mp][dy]"))
    ]
    texts += [
        "日本語の全文検索エンジン Python入門",
        "Größe ÆON İstanbul ΟΔΟΣ naïve re\u0301sume\u0301",
        "हिन्दी में खोज",
        "ภาษาไทย ๑๒๓",
        "x² ½ ⅷ Ⓐ ﬁne",
    ]
    put(index, *(stored(number, text) for number, text in enumerate(texts, 1)))
    searcher = tantivy.Index.open(str(tmp_path / "keyword")).searcher()
    entries_by_name = dict(searcher.terms_with_prefix("text", ""))
    expected: dict[str, int] = {}
    for text in texts:
        for term in set(analyze.terms(text)):
            expected[term] = expected.get(term, 0) + 1
    assert entries_by_name == expected


# -- a writer that was killed --------------------------------------------------------------------------------
@pytest.fixture
def left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index as a writer leaves it that dies before it could merge its many segments."""
    monkeypatch.setattr("ctx.store.tantivy._THREADS", 1)  # so that what is put together is in one segment
    path = tmp_path / "left"
    with closing(KeywordIndex(str(path), writable=True)) as index:
        put(index, *(stored(number, "an otter") for number in range(1, 20)))
        put(index, *(stored(number, "a heron") for number in range(20, 25)))
        put(index, stored(25, "a finch"))
        index.delete(1)
        index.commit()
        index.delete(20)
        index.commit()
    meta = json.loads((path / "meta.json").read_text())
    finch = min(meta["segments"], key=lambda segment: segment["max_doc"])["segment_id"]
    for number in range(
        8
    ):  # the last segment again and again, which is not how they come to be, but all that a merge looks at
        copy = f"{number:08x}{finch[8:]}"
        for file in path.glob(finch.replace("-", "") + ".*"):
            shutil.copy(file, path / (copy.replace("-", "") + file.suffix))
        meta["segments"].append({"segment_id": copy, "max_doc": 1, "deletes": None})
    (path / "meta.json").write_text(json.dumps(meta))
    return path


@pytest.mark.parametrize(
    "first", [2, 21, 25]
)  # in a segment with older deletions, with the latest, with none
def test_the_first_document_that_is_replaced_after_a_kill_is_gone(left_behind: Path, first: int) -> None:
    with closing(KeywordIndex(str(left_behind), writable=True)) as index:
        put(index, stored(first, "a kingfisher"))
    with closing(KeywordIndex(str(left_behind), writable=True)) as index:
        assert not {first, 1, 20} & {
            *numbers(index, "otter"),
            *numbers(index, "heron"),
            *numbers(index, "finch"),
        }
        assert numbers(index, "kingfisher") == [first]


def defining(index: KeywordIndex, *names: str) -> list[int]:
    return [hit.document_no for hit in index.definitions(names, ALL, 5)]


def test_a_name_leads_to_the_code_that_defines_it_and_to_no_page_that_says_so(index: KeywordIndex) -> None:
    method = "func (p *Pond) FeedOtter(food int) {\n}\n"
    put(
        index,
        stored(1, "def feed_otter(): stands in a page"),
        stored(2, "pond.FeedOtter(3)\n", media_type="text/x-go"),
        stored(3, "package pond\n", method, media_type="text/x-go"),
    )
    for name in ("FeedOtter", "feedOtter", "feed_otter"):
        assert [(hit.document_no, hit.chunk_no) for hit in index.definitions([name], ALL, 5)] == [(3, 3000)]
    assert defining(index, "Otter", "()") == []


def test_a_name_in_the_plural_is_another_definition(index: KeywordIndex) -> None:
    kinds = [stored(number, f"class {name}:\n    pass\n", media_type="text/x-python")
             for number, name in enumerate(("Int16", "Int16s"), 1)]  # fmt: skip
    put(index, *kinds)
    assert defining(index, "Int16") == [1]
    assert defining(index, "Int16s") == [2]
    assert defining(index, "Int16", "Int16s") == [1, 2]
