"""The keyword index in tantivy: words, identifiers, titles, headings and paths.

Each tantivy document is a passage: a few neighbouring chunks of one document. A chunk fits into an embedder's
window, but BM25 works better on longer text, because the words of a question are seldom in one paragraph
(docs/ranking.md has the figures). The index does not store the texts; they are in the catalog.
"""

import json
import os
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log
from typing import Any, NamedTuple

import tantivy

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.models import Filters, Hit, best_first
from ctx.store.folder import IndexDamaged
from ctx.store.record import StoredDocument
from ctx.text import analyze

# Only this many terms of a query are searched, the rarest. A pasted page would otherwise read every posting
# list.
MAX_TERMS = 32
ALL_WORDS_TERMS = 8  # queries with at most this many terms also try to match all words
ALL_WORDS_BONUS = 1.2  # score factor for passages that contain all words in their text
HEAD_BOOST = 0.2  # weight of a match in the title, heading or path
PREFIX_WORDS = 32  # the number of words, the most frequent, to which an incomplete word is completed
# The score of a completed word. It is the same for all, because a rare completion is not more likely than a
# common one.
PREFIX_BOOST = 3.0
# The number of passages read beyond k. Of passages with equal scores, those with the lowest chunk numbers are
# kept, so that the order does not depend on k.
TIE_MARGIN = 100

MAX_PHRASES = 8
_NO_DOCUMENT = -1  # a document number that never occurs, because the catalog counts from 1
# With one thread, a commit makes one segment instead of two, and a search must read every segment. Extracting
# text is slower than this thread, and a second thread would cost an eighth more CPU time.
_THREADS = 1
_HEAP_BYTES = 128 << 20  # the writer's memory
META, _MANAGED = "meta.json", ".managed.json"  # tantivy's own files; each commit replaces the first
_MAX_LIST_BYTES = 16 << 20  # the largest file list of tantivy that is read: some hundred thousand names
# About three chunks. Of the sizes from 1000 to 3500, this one ranks best for both code and pages.
PASSAGE_CHARS = 2200

DAMAGED = "the keyword index is damaged: run `ctx index` to rebuild it"
_SILENT = "the keyword index could not answer: run `ctx doctor`"
_SHOULD, _MUST = tantivy.Occur.Should, tantivy.Occur.Must


def _schema() -> Any:
    build = tantivy.SchemaBuilder()
    build.add_text_field("text", tokenizer_name="words")
    build.add_text_field("head", tokenizer_name="words")
    build.add_text_field("defines", tokenizer_name="raw", index_option="basic")
    build.add_text_field("source", tokenizer_name="raw", index_option="basic")
    build.add_integer_field("document_no", indexed=True, fast=True)
    build.add_integer_field("chunk_no", fast=True)
    build.add_integer_field("span", fast=True)
    build.add_integer_field("updated_ms", fast=True)
    return build.build()


class KeywordIndex:
    """A tantivy index in a folder. Only one process can write at a time; readers see whole commits.

    Searches may run in any thread, also during writes. Raises `StoreError`, and `Busy` if another writer has
    opened the folder.
    """

    def __init__(self, path: str, *, writable: bool) -> None:
        self._path = path
        self._schema = _schema()
        self._writer: Any = None
        try:
            if os.path.isdir(path):
                files.check_plain(path)  # tantivy truncates its lock files, and would follow a link
            if writable:
                files.make_folder(path)
                if not keeps_to_itself(path):
                    raise IndexDamaged(DAMAGED)
                self._index = tantivy.Index(self._schema, path=path, reuse=True)
            else:
                self._index = tantivy.Index.open(path if os.access(path, os.W_OK) else self._linked())
            self._index.register_tokenizer("words", analyze.tokenizer())
            # "manual", because the other policy polls for commits in the background.
            self._index.config_reader(reload_policy="manual")
            self._searcher = self._index.searcher()
        except (OSError, ValueError) as error:
            raise IndexDamaged(
                "the keyword index cannot be opened: delete the index folder and run `ctx index`"
            ) from error
        if writable:
            self._begin_writing()

    def _begin_writing(self) -> None:
        try:
            self._writer = self._index.writer(_HEAP_BYTES, _THREADS)
        except ValueError as error:
            if "lock" in str(error).lower():
                raise Busy("another process is writing the index: try again when it has finished") from error
            raise StoreError("the keyword index cannot be written: see the log") from error
        # A killed writer may have left a deletions file with the name that our commit would use.
        self._write(self._writer.garbage_collect_files)
        # A writer's first operation gets the number of the last commit. A merge that starts before the next
        # commit would treat a deletion with that number as applied, and the document would not be deleted.
        # So the first operation is a deletion that does nothing.
        self.delete(_NO_DOCUMENT)

    def add(self, stored: StoredDocument) -> None:
        """Adds or replaces a document, which is visible after `commit`."""
        self.delete(stored.document_no)
        document = stored.document
        for passage in passages(stored):
            entry = tantivy.Document()
            for text in passage.texts:
                entry.add_text("text", text)
            for text in passage.heads:
                entry.add_text("head", text)
            for name in passage.names:
                entry.add_text("defines", name)
            entry.add_text("source", document.source)
            entry.add_integer("document_no", stored.document_no)
            entry.add_integer("chunk_no", passage.chunk_no)
            entry.add_integer("span", passage.span)
            entry.add_integer("updated_ms", document.updated_ms)
            self._write(self._writer.add_document, entry)

    def delete(self, document_no: int) -> None:
        """Deletes a document. The deletion takes effect at `commit`. An unknown number is ignored."""
        self._write(self._writer.delete_documents_by_term, "document_no", document_no)

    def commit(self) -> None:
        """Makes all changes durable. They are visible in this object and in readers that open the folder
        afterwards.
        """
        self._write(self._writer.commit)
        self._write(self._index.reload)
        self._searcher = self._index.searcher()

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """See `SearchIndex`."""
        searcher = self._searcher
        weights = {}
        for term in terms:
            if frequency := searcher.doc_freq("text", term) or searcher.doc_freq("head", term):
                weights[term] = idf(searcher.num_docs, frequency)
        return weights, [name for name in names if searcher.doc_freq("defines", analyze.whole(name))]

    def resembling(self, words: Sequence[str]) -> str | None:
        """The word whose stem is in most passages; None if no word occurs. Of words with the same stem, the
        longest is returned: `kubernetes`, not `kubernets`.
        """
        searcher = self._searcher
        stems = analyze.words(" ".join(words))
        counts = [searcher.doc_freq("text", stem) for stem in stems]
        return likeliest(words, stems, counts)

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        """At most k passages whose code defines one of the names, ordered by chunk number."""
        wholes = dict.fromkeys(filter(None, map(analyze.whole, names)))
        parts = [tantivy.Query.term_query(self._schema, "defines", name, "basic") for name in wholes]
        return self._hits([(tantivy.Query.const_score_query(part, 1.0), 1.0) for part in parts], filters, k)

    def search(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """The k best passages for a query, best first; passages with equal scores by chunk number. Any text
        is a valid query. With `prefix`, the last word may be incomplete.
        """
        counts = analyze.query_counts(query)
        if not counts:
            return []
        searcher = self._searcher
        exact = analyze.exact_phrases(query)
        if exact:
            return self._hits([(self._exact(exact), 1.0)], filters, k)
        if len(counts) > MAX_TERMS:
            counts = rarest(counts, {term: searcher.doc_freq("text", term) for term in counts})
        unfinished = self._unfinished(searcher, query) if prefix else []
        return self._hits(self._queries(query, counts, unfinished), filters, k)

    def _hits(self, queries: Iterable[tuple[Any, float]], filters: Filters, k: int) -> list[Hit]:
        """Runs the queries (query, factor), multiplies their scores by the factors, and returns the k best
        passages. A passage keeps its best score.
        """
        if filters.closed:
            return []
        searcher = self._searcher  # one searcher for all queries, because addresses differ between searchers
        # Filters do not change scores.
        conditions = [
            (_MUST, tantivy.Query.const_score_query(part, 0.0)) for part in self._conditions(filters)
        ]
        scores: list[float] = []
        addresses: list[Any] = []
        try:
            for query, factor in queries:
                if conditions:
                    query = tantivy.Query.boolean_query([(_MUST, query), *conditions])
                for score, address in searcher.search(query, k + TIE_MARGIN, count=False).hits:
                    scores.append(score * factor)
                    addresses.append(address)
            chunk_nos, document_nos, spans = (
                searcher.fast_field_values(field, addresses) for field in ("chunk_no", "document_no", "span")
            )
        except (OSError, ValueError) as error:
            raise IndexDamaged(_SILENT) from error
        if not (all(chunk_nos) and all(document_nos)):  # a number is 0, so the file is damaged
            raise IndexDamaged(_SILENT)
        hits = best_first(list(zip(chunk_nos, document_nos, scores, spans, strict=True)))
        return list(map(Hit._make, hits[:k]))

    def close(self) -> None:
        """Waits for merges and closes the folder. Uncommitted changes are lost."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._write(writer.wait_merging_threads)

    # -- inside ----------------------------------------------------------------------------------------------

    def _linked(self) -> str:
        """The path of a temporary folder with links to all files. Tantivy needs to create a lock file next to
        its files, but their folder is read-only.
        """
        folder = tempfile.mkdtemp(prefix="ctx-index-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for name in os.listdir(self._path):
            if not name.endswith(".lock"):
                os.symlink(os.path.abspath(os.path.join(self._path, name)), os.path.join(folder, name))
        return folder

    def _write(self, act: Any, *arguments: Any) -> None:
        try:
            act(*arguments)
        except (OSError, ValueError) as error:
            raise StoreError("the keyword index could not be written: is the disk full?") from error

    def _exact(self, phrases: Sequence[list[str]]) -> Any:
        """The query for passages that contain all of these phrases. A phrase of one word also matches other
        spellings of an identifier.
        """
        parts = [[self._side_by_side(field, phrase) for field in ("text", "head")] for phrase in phrases]
        either = [tantivy.Query.boolean_query([(_SHOULD, part) for part in fields]) for fields in parts]
        return either[0] if len(either) == 1 else tantivy.Query.boolean_query([(_MUST, q) for q in either])

    def _term(self, field: str, term: str) -> Any:
        return tantivy.Query.term_query(self._schema, field, term, "freq")

    def _side_by_side(self, field: str, words: list[str]) -> Any:
        if len(words) == 1:
            return self._term(field, words[0])
        return tantivy.Query.phrase_query(self._schema, field, list(words))

    def _unfinished(self, searcher: Any, query: str) -> list[str]:
        """The terms that start with the incomplete last word of the query. If no term does, the stem of the
        word that it may become: no term starts with `authenticatio`, so this is `authent`.
        """
        words = analyze.plain_words(query)
        if not words or query[-1:].isspace():
            return []
        word = words[-1]
        terms = [term for term, _ in searcher.terms_with_prefix("text", word, limit=PREFIX_WORDS)]
        if terms:
            return terms
        stems = analyze.stems_of_unfinished(word)
        return next(([stem] for stem in stems if searcher.doc_freq("text", stem)), [])

    def _queries(
        self, query: str, counts: dict[str, int], unfinished: Sequence[str]
    ) -> Iterator[tuple[Any, float]]:
        """The queries for tantivy, each with a factor for its scores. A passage keeps its best score.

        The first query matches any word. The others (all words; quoted phrases) match few passages and are
        cheap. The second query requires all words in the text field only, because an intersection over both
        fields would cost nearly as much as the first query.
        """
        boosted, both = tantivy.Query.boost_query, tantivy.Query.boolean_query
        texts = {term: self._term("text", term) for term in counts}
        for term, count in counts.items():
            if count > 1:
                texts[term] = boosted(texts[term], float(count))
        heads = {
            term: boosted(self._term("head", term), HEAD_BOOST * count) for term, count in counts.items()
        }
        any_word = [(_SHOULD, part) for fields in (texts, heads) for part in fields.values()]
        if unfinished:
            beginning = both([(_SHOULD, self._term("text", term)) for term in unfinished])
            any_word.append((_SHOULD, tantivy.Query.const_score_query(beginning, PREFIX_BOOST)))
        yield both(any_word), 1.0
        if 1 < len(counts) <= ALL_WORDS_TERMS:
            every_word = [(_MUST, part) for part in texts.values()]
            every_word += [(_SHOULD, part) for part in heads.values()]
            yield both(every_word), ALL_WORDS_BONUS
        phrases = analyze.quoted_phrases(query)[:MAX_PHRASES]
        if phrases:
            fields = ("text", "head")
            side_by_side = [
                (_SHOULD, self._side_by_side(field, phrase)) for phrase in phrases for field in fields
            ]
            yield both([(_MUST, both(side_by_side)), *any_word]), ALL_WORDS_BONUS

    def _conditions(self, filters: Filters) -> Iterator[Any]:
        if filters.sources is not None:
            yield tantivy.Query.term_set_query(self._schema, "source", sorted(filters.sources))
        if filters.since_ms is not None or filters.until_ms is not None:
            low, high = filters.since_ms, filters.until_ms
            yield tantivy.Query.range_query(self._schema, "updated_ms", tantivy.FieldType.Integer, low, high)
        if filters.documents is not None:
            yield tantivy.Query.term_set_query(self._schema, "document_no", sorted(filters.documents))


def rarest(counts: dict[str, int], frequencies: Mapping[str, int]) -> dict[str, int]:
    """The `MAX_TERMS` terms of a query that occur in the fewest passages, as term -> count in the query.

    `frequencies` is term -> number of passages.
    """
    present = [term for term in counts if frequencies.get(term)]
    chosen = sorted(present, key=lambda term: (frequencies[term] / counts[term], term))[:MAX_TERMS]
    return {term: counts[term] for term in chosen or list(counts)[:MAX_TERMS]}


def idf(count: int, frequency: int) -> float:
    """BM25's idf of a term that occurs in `frequency` of `count` passages."""
    return log(1 + max(0.0, count - frequency + 0.5) / (frequency + 0.5))


def likeliest(words: Sequence[str], stems: Sequence[str], counts: Sequence[int]) -> str | None:
    """The word whose stem is in most passages; None if no stem occurs. `stems[i]` is the stem of `words[i]`,
    and `counts[i]` its number of passages.
    """
    if len(stems) != len(words) or not any(counts):
        return None
    # Prefers `standard` to `standarde`, and `kubernetes` to `kubernets`.
    ranks = [(count, word == stem, len(word)) for word, count, stem in zip(words, counts, stems, strict=True)]
    return words[ranks.index(max(ranks))]


@contextmanager
def damage_reported() -> Iterator[None]:
    """A context manager that turns the errors which tantivy raises for damaged files (a panic, None in place
    of a number) into `IndexDamaged`.
    """
    try:
        yield
    except BaseException as error:  # pyo3's panic is a BaseException without a public name
        if isinstance(error, TypeError) or type(error).__name__ == "PanicException":
            raise IndexDamaged(DAMAGED) from error
        raise


def keeps_to_itself(folder: str) -> bool:
    """Whether tantivy's file list names only files in this folder. Tantivy deletes listed files that belong
    to no commit, so a list from an untrusted archive could delete any file of the user.
    """
    try:
        names = read_json(os.path.join(folder, _MANAGED))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(
        isinstance(name, str) and name == os.path.basename(name) and name.strip(".") for name in names
    )


def read_json(path: str) -> Any:
    return json.loads(files.read_file(path, most=_MAX_LIST_BYTES))


class Passage(NamedTuple):
    """`span` neighbouring chunks of a document, from `chunk_no` on.

    `texts` and `heads` are the values of the two searched fields. Each field can have several values, and a
    phrase must be inside one value.
    `names` are the names that its code defines, each as one word (`analyze.whole`).
    """

    chunk_no: int
    span: int
    texts: list[str]
    heads: list[str]
    names: list[str]


def passages(stored: StoredDocument) -> Iterator[Passage]:
    """The passages of a document, in order."""
    document = stored.document
    path = document.source_id
    stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    title = "" if document.title == stem else document.title  # a title made from the path adds nothing
    # If a line is split over passages, its names belong to the first: minified code has thousands on a line.
    defined = deque(
        sorted((each.name_line, each.name) for each in document.definitions if each.kind != "impl")
    )
    for first, span in _cuts(stored):
        chunks = stored.chunks[first : first + span]
        start, end = chunks[0].start, chunks[-1].end
        names: list[str] = []
        while defined and defined[0][0] <= chunks[-1].end_line:
            names.append(analyze.whole(defined.popleft()[1]))
        text = analyze.composed(document.body[start:end])
        headings = "\n".join(dict.fromkeys(chunk.heading for chunk in chunks if chunk.heading))
        head = analyze.composed(f"{path}\n{title}\n{headings}")
        yield Passage(
            stored.chunk_nos[first],
            span,
            [text, *filter(None, (analyze.additions(text), title))],
            [head, *filter(None, (analyze.additions(head),))],
            list(dict.fromkeys(names)),
        )


def _cuts(stored: StoredDocument) -> Iterator[tuple[int, int]]:
    """(index of the first chunk, number of chunks) of each passage. All passages have about the same length,
    close to PASSAGE_CHARS.

    With uneven lengths, a short passage at the end would outrank its longer neighbours.
    """
    chunks = stored.chunks
    if not chunks:
        return
    base = chunks[0].start
    chars = chunks[-1].end - base
    target = chars / max(1, round(chars / PASSAGE_CHARS))
    first, position = 0, 0
    for i, chunk in enumerate(chunks):
        middle = (chunk.start + chunk.end) / 2 - base
        if i > first and middle >= (position + 1) * target:
            yield first, i - first
            first = i
        while middle >= (position + 1) * target and target:
            position += 1
    yield first, len(chunks) - first
