"""What is shown of a text: where the query's words stand in it, and the window that holds most of them, clean
of markup.

Texts are looked through by hand: `re` would be 4 ms of a search from the command line, an eighth of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from ctx import analyze
from ctx.lean import NamedTuple, pattern, records

SNIPPET_CHARS = 240
_LONG_CHARS = 600  # no heading and no label is so long
LABEL_CHARS = 25  # a line that ends in a colon and is shorter announces what stands in the next chunk

_RULES = '-=~^*_`"'  # three at the start of a line draw a rule, or open a block of code
_STOPS, _FULL_STOPS = ".!?…", "。！？"  # the first end a sentence where a space follows
_CLOSERS = "\"'’”)]"
_LEAD_CHARS = 60  # shown before the first matching word at most, where no sentence begins nearer
# From Thai on scripts put no spaces between words, or are cut like those that do not.
_FIRST_UNSPACED = "\u0e00"
_SPACES = b"\t\n\v\f\r\x1c\x1d\x1e\x1f"  # of ASCII, beside the space itself
_TAG_CHARS = 300  # a longer one is no tag
_TAGS = frozenset(
    """
    a abbr b blockquote br center code dd del details div dl dt em figcaption figure font h1 h2 h3 h4 h5
    h6 hr i iframe img input ins kbd li mark nav ol p picture pre s samp section small source span
    strong sub summary sup svg table tbody td tfoot th thead tr tt u ul video
    """.split()  # noqa: SIM905 - a list of sixty lines else
)
# From so many on a query with punctuation may be a line that was copied; without it, of twice as many.
_LINE_WORDS = 3
# Of what it says, which a text has at least that has the line: not every part of a name stands alone in it.
_LINE_SHARE = 0.5
_WORDS = pattern(r"[^\W_]+")  # as the index parts them

Terms = int  # a set of a query's terms: bit i says that the i-th is in it. A search unites thousands of them


class Mark(NamedTuple):
    """A word [start, end) of a text that the query has, and which of the query's terms it is."""

    start: int
    end: int
    terms: Terms


class Text(NamedTuple):
    """A chunk's text with what tells how to read it. `heading` is the path of headings above it."""

    text: str
    title: str
    heading: str
    prose: bool


class _Shares(dict[Terms, float]):
    """How much of what a query says some of its terms are, in [0, 1]: a rare one is more than a common
    one.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self[0] = 0.0
        self._weights = weights
        self._total = sum(weights) or 1.0

    def __missing__(self, terms: Terms) -> float:
        present = [weight for i, weight in enumerate(self._weights) if terms >> i & 1]
        share = self[terms] = sum(present) / self._total
        return share


class Matcher:
    """Finds a query's terms in texts, fast enough to be done for every chunk that may be shown.

    A stem begins its word but for a last letter (happi, happy), so texts are looked through for beginnings,
    and only the words found so are analysed. `weights` tell how much each term says (its rarity); one that
    they lack counts 1. `phrases` are terms that are asked for side by side, `line` is a query that may have
    been copied from a text.
    """

    def __init__(
        self,
        terms: Sequence[str],
        weights: Mapping[str, float],
        snippet_chars: int = SNIPPET_CHARS,
        phrases: Sequence[Sequence[str]] = (),
        line: str = "",
    ) -> None:
        words = line.lower().split()
        marked = any(not (char.isalnum() or char in " ?") for char in line)
        self.line = " ".join(words) if len(words) >= (_LINE_WORDS if marked else 2 * _LINE_WORDS) else ""
        self.phrases = [list(phrase) for phrase in phrases]
        self.terms = list(dict.fromkeys(terms))
        self._snippet_chars = snippet_chars
        self._bits = {term: 1 << i for i, term in enumerate(self.terms)}
        beginnings = [(bit, analyze.beginning(term)) for term, bit in self._bits.items()]
        self._beginnings = [(bit, part, f" {part}") for bit, part in beginnings]
        self._parts = sorted({part for _, part in beginnings}, key=len, reverse=True)
        self._terms_of: dict[str, Terms] = {}  # a word of a text -> which terms of the query it is
        self.shares = _Shares([weights.get(term, 1.0) for term in self.terms])
        self._terms_of_headings: dict[str, Terms] = {"": 0}

    def terms_in(self, text: str) -> Terms:
        """The terms that words of the text seem to begin with."""
        low = text.lower() if text.isascii() else analyze.folded(text)
        terms = 0
        for bit, part, spaced_part in self._beginnings:
            # Few are in a text, and before most of those a word has ended.
            if part in low and (spaced_part in low or begins_word(low, part, text, low.find(part))):
                terms |= bit
        return terms

    @property
    def verbatim(self) -> bool:
        """Whether the query may ask for words as they were written."""
        return bool(self.phrases or self.line)

    def quotes(self, text: str, terms: Terms) -> bool:
        """Whether a text that has these terms says the query, or a phrase of it, as it was written."""
        if not self.phrases and self.shares[terms] < _LINE_SHARE:
            return False
        return self.phrase_at(" ".join(text.split())) is not None

    def phrase_at(self, text: str) -> int | None:
        """Where a text on one line says the query, or a phrase that it has in quotes; None where it does
        not.
        """
        position = text.lower().find(self.line) if self.line else -1
        if position >= 0:
            return position
        if not self.phrases:
            return None
        stems = analyze.words(text)
        places = [match.start() for match in _WORDS.finditer(text)]
        if len(places) != len(stems):  # a word that is too long for the index is none of its terms
            return None
        for phrase in self.phrases:
            for i in range(len(stems) - len(phrase) + 1):
                if stems[i : i + len(phrase)] == phrase:
                    return places[i]
        return None

    def terms_of_heading(self, heading: str) -> Terms:
        """`terms_in` of a heading, or a path of them, which many chunks have."""
        terms = self._terms_of_headings.get(heading)
        if terms is None:
            terms = self._terms_of_headings[heading] = self.terms_in(heading)
        return terms

    def listed(self, terms: Terms) -> list[str]:
        """The terms of a set, in the query's order."""
        return [term for term, bit in self._bits.items() if terms & bit]

    def marks(self, text: str) -> list[Mark]:
        """Where the words stand, in order and apart."""
        low, origins = _folded(text)
        spaced = low.isascii()
        spans: list[tuple[int, int, Terms]] = []
        read_to = 0
        for start, end in _places(low, self._parts):
            if start < read_to:
                continue
            begin, end = _word(low, start, end, read_to, spaced)
            first, last = (begin, end) if origins is None else (origins[begin], origins[end])
            word = text[first:last]
            terms = self._terms_of.get(word)
            if terms is None:
                terms = self._terms_of[word] = self._terms_of_word(word)
            if terms:
                spans.append((first, last, terms))
                read_to = end
        marks = records(Mark, spans)
        return sorted(marks + self._snakes(text, low, marks)) if "_" in text else marks

    def _terms_of_word(self, word: str) -> Terms:
        terms = 0
        for term in analyze.terms_of_word(word):
            terms |= self._bits.get(term, 0)
        return terms

    def _snakes(self, text: str, low: str, marks: list[Mark]) -> list[Mark]:
        """Identifiers with underscores that the query has without them, where no part of one is marked
        already.
        """
        absent = [part for part in self._parts if part not in low]
        if not absent:
            return []
        squeezed = low.replace("_", "")
        if not any(part in squeezed for part in absent):
            return []
        snakes = []
        for start, end in analyze.snake_spans(text):
            terms = self._terms_of_word(text[start:end].replace("_", ""))
            if terms and not any(mark.start < end and mark.end > start for mark in marks):
                snakes.append(Mark(start, end, terms))
        return snakes

    def snippet(self, chunk: Text) -> tuple[str, tuple[tuple[int, int], ...]]:
        """About `snippet_chars` of a chunk, whole words, around most of the query's words; and where those
        stand in it.
        """
        text = plain(chunk)
        marks = self.marks(text)
        start, end = self._window(text, marks)
        lead = "…" if start else ""
        snippet = lead + text[start:end] + ("…" if end < len(text) else "")
        shift = len(lead) - start
        inside = [(first + shift, last + shift) for first, last, _ in marks if first >= start and last <= end]
        return snippet, tuple(inside)

    def _window(self, text: str, marks: list[Mark]) -> tuple[int, int]:
        """[start, end) of the `snippet_chars` characters that say most of the query, begun at a sentence
        where one is near.
        """
        if len(text) <= self._snippet_chars:
            return 0, len(text)
        phrase = self.phrase_at(text)
        first, until = self._densest(marks) if phrase is None else (phrase, phrase)
        space = text.find(" ", until, until + _LEAD_CHARS)
        until = until if space < 0 else space  # a window ends between words, and a name may go on
        start = 0
        if first > self._snippet_chars // 2:
            sentences = _sentences(text, max(0, first - 2 * _LEAD_CHARS), first)
            begins = [begin for begin in sentences if until - begin <= self._snippet_chars]
            start = begins[0] if begins else text.find(" ", max(0, first - _LEAD_CHARS), first) + 1
            start = start or first
        elif until > self._snippet_chars:  # what is asked for ends beyond the first ones
            start = text.find(" ", until - self._snippet_chars, first) + 1 or first
        end = _window_end(text, start, marks, self._snippet_chars)
        while end > start and text[end - 1] == " ":
            end -= 1
        return start, end

    def _densest(self, marks: list[Mark]) -> tuple[int, int]:
        """Where the words begin that say most together within a window, and until where each was said once;
        of several equals the first.
        """
        first_at = until = last = 0
        highest = 0.0
        for i, first in enumerate(marks):
            while last < len(marks) and marks[last].start < first.start + self._snippet_chars - _LEAD_CHARS:
                last += 1
            terms = complete = 0
            for mark in marks[i:last]:
                if mark.terms & ~terms:
                    terms, complete = terms | mark.terms, mark.end
            value = self.shares[terms] + 0.001 * (last - i)
            if value > highest:
                first_at, until, highest = first.start, complete, value
        return first_at, until


def begins_word(low: str, part: str, text: str, start: int) -> bool:
    """Whether some word of a text (`low`: folded, as long as the text or not) begins with `part`: also a
    hump, or an ideograph.

    `start` is where the part is found first.
    """
    while start >= 0:
        if start == 0 or not low[start - 1].isalnum() or low[start] >= _FIRST_UNSPACED:
            return True
        if len(low) == len(text) and text[start].isupper():
            return True
        start = low.find(part, start + 1)
    return False


def _folded(text: str) -> tuple[str, list[int] | None]:
    """The text in lower case without accents; and, where that is not as long, where each of its characters
    comes from.
    """
    if text.isascii():
        return text.lower(), None
    low = analyze.folded(text)
    if len(low) == len(text):
        return low, None
    origins = [i for i, char in enumerate(text) for _ in analyze.folded(char)]
    return low, [*origins, len(text)]


def _places(text: str, parts: Sequence[str]) -> list[tuple[int, int]]:
    """[start, end) of every part in the text, in order; of those of one start, the one that comes first in
    `parts`.
    """
    places: list[tuple[int, int]] = []
    for part in parts:
        start = text.find(part) if part in text else -1  # few are, which `in` tells in a third of the time
        while start >= 0:
            places.append((start, start + len(part)))
            start = text.find(part, start + 1)
    return sorted(places, key=itemgetter(0))


def _word(low: str, start: int, end: int, read_to: int, spaced: bool) -> tuple[int, int]:
    """The whole word around [start, end), where its script has such; `spaced`: all of the text is of one that
    has.
    """
    if spaced:
        while start > read_to and low[start - 1].isalnum():
            start -= 1
        while end < len(low) and low[end].isalnum():
            end += 1
        return start, end
    if max(low[start:end]) >= _FIRST_UNSPACED:
        return start, end
    while start > read_to and low[start - 1].isalnum() and low[start - 1] < _FIRST_UNSPACED:
        start -= 1
    while end < len(low) and low[end].isalnum() and low[end] < _FIRST_UNSPACED:
        end += 1
    return start, end


def _window_end(text: str, start: int, marks: list[Mark], size: int) -> int:
    end = min(len(text), start + size)
    if end == len(text):
        return end
    sentences = _sentences(text, start + size * 2 // 3, end)
    covered = max((mark.end for mark in marks if mark.end <= end), default=0)
    if sentences and sentences[-1] >= covered:
        return sentences[-1]
    space = text.rfind(" ", start + size // 2, end + 1)
    return space if space > 0 else end


def _sentences(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin behind one that ends in [start, end) of a text on one line, at most at `end`."""
    begins = []
    for stop in _STOPS:
        i = text.find(stop, start, end) + 1
        while i:
            closed = i
            while closed < end and text[closed] in _CLOSERS:
                closed += 1
            if closed < end and text[closed] == " ":
                begins.append(closed + 1)
            i = text.find(stop, i, end) + 1
    if not text.isascii():
        begins += [i for i in range(start + 1, end + 1) if text[i - 1] in _FULL_STOPS]
    return sorted(begins)


# -- without markup ------------------------------------------------------------------------------------------


def plain(chunk: Text) -> str:
    """A chunk's text on one line, without markup, and without the heading that is told beside it."""
    lines = chunk.text.split("\n")
    named = lines[0].lstrip("# \t").strip()
    if len(lines) > 1 and named and named in (chunk.title, chunk.heading.rsplit(" > ", 1)[-1]):
        lines = lines[1:]
    marked = _may_be_marked(chunk.text)
    if marked or not "".join([line[:1] for line in lines]).isalnum():  # no line begins with a sign
        lines = list(_unmarked_lines(lines, chunk.prose, marked))
    line = _in_one_line(" ".join(filter(None, lines)))
    return line or _in_one_line(chunk.text) or chunk.title


def _in_one_line(text: str) -> str:
    """The text with a single space wherever there is space, none at the ends."""
    spaced = "  " in text or not text.isascii() or len(text.encode().translate(None, _SPACES)) < len(text)
    return " ".join(text.split()) if spaced else text.strip(" ")


def is_bare(chunk: Text) -> bool:
    """Whether a chunk of prose says next to nothing below its headings: a heading alone, front matter, a
    label.
    """
    if not chunk.prose or (len(chunk.text) > _LONG_CHARS and chunk.text[:3] not in ("---", "+++")):
        return False
    if _is_adorned_heading(chunk):
        return True
    letters = _plain_letters(chunk.text)
    if letters > len(chunk.heading):
        return False
    first = chunk.text[:1]
    may_be_heading = first == chunk.heading[:1] or not first.strip()
    if may_be_heading and "".join(chunk.text.split()) == "".join(chunk.heading.split()):
        return True
    if letters:
        return False
    if first == "#" and _plain_letters(chunk.text.lstrip("#").partition("\n")[2].lstrip()):
        return False
    words = ""
    lines = [line for line in chunk.text.split("\n") if line[:1] != "#"]
    for line in _unmarked_lines(lines, prose=True, inline=_may_be_marked(chunk.text)):
        words += "".join(line.split())
        if len(words) >= LABEL_CHARS:
            return False
    return not words or words.endswith(":")


def _is_adorned_heading(chunk: Text) -> bool:
    """Whether a chunk is a heading with a line of signs below it (above it too), as reStructuredText has
    them, and nothing else but labels.
    """
    text = chunk.text.rstrip()
    if text[-1:].isalnum() or text[-3:] != text[-1:] * 3:  # most texts end otherwise
        return False
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line)) and not line.startswith(".. _")]
    return len(lines) == 1 and lines[0].strip() in (chunk.heading.rpartition(" > ")[2], chunk.title)


def _plain_letters(text: str) -> int:
    """How many letters the first line begins with, where they are words enough and no sign among them could
    be markup; else 0.

    Most texts begin so, which is told at once.
    """
    start = text[: 4 * LABEL_CHARS].partition("\n")[0]
    letters = start.replace(" ", "").replace(",", "")
    return len(letters) if len(letters) >= LABEL_CHARS and letters.isalnum() else 0


def _may_be_marked(text: str) -> bool:
    """Whether a text of prose may have what `_without_inline` looks for; most have none, told at once."""
    return "`" in text or "*" in text or "]" in text or "<" in text or "{" in text


def _unmarked_lines(lines: list[str], prose: bool, inline: bool) -> Iterator[str]:
    """The lines without markup; `inline`: in prose some may have it beyond their beginnings. What stands
    between fences is code and stays as it is.
    """
    lines = lines[_front_matter_end(lines) :] if prose else lines
    fenced = prose and inline and _begins_in_code(lines)
    for line in lines:
        if prose and inline and _is_fence(line):
            fenced = not fenced
            continue
        if fenced:
            yield line
            continue
        if not (line[:1].isalnum() or line.lstrip()[:1].isalnum()):  # else there is no mark before it
            line = _unmarked(line)
            if prose and line:
                line = _without_directive(line)
        if prose and inline and line:
            line = _without_inline(line)
        if line:
            yield line


def _is_fence(line: str) -> bool:
    return "```" in line and line.lstrip().startswith("```")


def _begins_in_code(lines: list[str]) -> bool:
    """Whether a text begins within a block of code that was cut: its first fence is one of an odd number and
    names no language.
    """
    fences = [line.strip() for line in lines if _is_fence(line)]
    return len(fences) % 2 == 1 and fences[0] == "```"


def _front_matter_end(lines: list[str]) -> int:
    """How many lines at the top are front matter."""
    if not lines or lines[0].rstrip() not in ("---", "+++") or ":" not in "".join(lines[1:2]) + "=":
        return 0
    for i, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "+++", "..."):
            return i + 1
        if line and not line[0].isspace() and ":" not in line and "=" not in line and line[0] not in "-#]}":
            return 0
    return len(lines)


def _unmarked(line: str) -> str:
    """The line without the mark of a heading or a quotation before it; nothing of one that begins with a
    rule.
    """
    text = line.lstrip(" \t")
    if text.startswith(">"):
        return text[1:]
    if text.startswith("|"):
        return _cells(text)
    if text.startswith("#"):
        named = text.lstrip("#")
        return named if named.startswith((" ", "\t")) and len(text) - len(named) <= 6 else line
    if text.startswith('"""'):  # a docstring begins on the line of its first sentence
        return text.strip('"')
    return "" if text[:1] in _RULES and text[:3] == text[:1] * 3 and len(text) > 2 else line


def _cells(row: str) -> str:
    """What the cells of a table's row say; nothing of the row that only draws a line."""
    if not row.strip("|-:+= \t"):
        return ""
    cells = [cell.strip() for cell in row.strip("| \t").replace("\\|", "\0").split("|")]
    words = " · ".join(filter(None, cells)).replace("\0", "|")
    return f"{words};" if words[-1:].isalnum() else words


def _without_directive(line: str) -> str:
    """The words of a line of reStructuredText or MyST markup: nothing of a label, an option, or a directive
    without words.
    """
    text = line.strip()
    if text.startswith(".. "):
        name, mark, argument = text[3:].partition("::")
        if mark and " " not in name:
            return argument
        return "" if text.startswith((".. _", ".. [")) else text[3:]
    if text.startswith(":") and text.count(":") >= 2:
        name, _, words = text[1:].partition(":")
        return line if " " in name or words.startswith("`") else words
    if text.startswith(("!!! ", "??? ", "::: ", ":::")):
        return text.lstrip("!?: ")
    return "" if text.startswith("(") and text.endswith(")=") else line


def _without_inline(line: str) -> str:
    """The line without tags, targets of links, roles, emphasis and the marks of code."""
    if "<" in line:
        line = _without_tags(line)
    if "](" in line or "][" in line:
        line = _without_links(line)
    if "`" in line:
        line = _without_roles(line)
    elif "**" in line:
        line = _without_emphasis(line)
    return line[: line.index("{#")] if "{#" in line else line


def _without_tags(line: str) -> str:
    """Without the tags of HTML. What else stands in angle brackets (`<file>`, an address) stays."""
    clean, read_to = "", 0
    start = line.find("<")
    while start >= 0:
        comment = line.startswith("<!--", start)
        end = line.find("-->" if comment else ">", start)
        name = line[start + 1 : end].lstrip("/").split(" ")[0].rstrip("/").lower() if end > 0 else ""
        if end > 0 and (comment or (name in _TAGS and end - start < _TAG_CHARS)):
            clean += line[read_to:start] + (" " if name in ("br", "td", "li", "p") else "")
            read_to = end + (3 if comment else 1)
        start = line.find("<", max(start + 1, read_to))
    return clean + line[read_to:]


def _without_links(line: str) -> str:
    """`[words](address)` and `[words][name]` as the words."""
    clean, read_to = "", 0
    while True:
        middle = min((i for i in (line.find("](", read_to), line.find("][", read_to)) if i >= 0), default=-1)
        if middle < 0:
            return clean + line[read_to:]
        start = line.rfind("[", read_to, middle)
        end = line.find(")" if line[middle + 1] == "(" else "]", middle + 2)
        if start < 0 or end < 0:
            clean, read_to = clean + line[read_to : middle + 2], middle + 2
            continue
        before = line[read_to:start]
        clean += (before[:-1] if before.endswith("!") else before) + line[start + 1 : middle]
        read_to = end + 1


def _without_roles(line: str) -> str:
    """`:ref:`words <target>``, `{ref}`words`` and `` `words <address>`_ `` as the words; other code without
    its marks.
    """
    pieces = line.split("`")
    for i in range(1, len(pieces), 2):
        before = pieces[i - 1]
        if before.endswith("}"):
            pieces[i - 1] = before[: before.rfind("{")]
        elif before.endswith(":"):
            role = before[:-1].rfind(":")
            if role >= 0 and before[role + 1 : -1].replace("-", "").replace(":", "").isalnum():
                pieces[i - 1] = before[:role]
        words, mark, _ = pieces[i].partition(" <")
        pieces[i] = words if mark and pieces[i].endswith(">") else pieces[i].lstrip("~!")
        if i + 1 < len(pieces) and pieces[i + 1].startswith("_"):
            pieces[i + 1] = pieces[i + 1].lstrip("_")
    if "**" in line:  # of the words between, not of a glob that is code
        pieces[::2] = _without_emphasis("`".join(pieces[::2])).split("`")
    return "".join(pieces)


def _without_emphasis(line: str) -> str:
    """The line without pairs of `**` around words: `**kwargs` and `src/**/*.py` are no such."""
    clean, read_to = "", 0
    start = line.find("**")
    while start >= 0:
        end = line.find("**", start + 2)
        if end < 0:
            break
        if _opens(line, start) and _opens(line[::-1], len(line) - end - 2):
            clean += line[read_to:start] + line[start + 2 : end]
            read_to = end + 2
            end = line.find("**", read_to)
        start = end
    return clean + line[read_to:]


def _opens(line: str, start: int) -> bool:
    """Whether the `**` there has a word behind it and none before: read backwards, whether it ends one."""
    before, behind = line[start - 1 : start] if start else "", line[start + 2 : start + 3]
    return not (before.isalnum() or before in ("/", "*")) and not (
        behind.isspace() or behind in ("", "/", "*")
    )
