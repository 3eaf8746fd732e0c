"""What a text says without its markup: front matter, headings, tables, tags, links, roles and directives.

Texts are looked through by hand: `re` would be 4 ms of a search from the command line, an eighth of it.
"""

from collections.abc import Iterator

from ctx.types import ChunkRow

_LONG_CHARS = 600  # no heading and no label is so long
LABEL_CHARS = 25  # a line that ends in a colon and is shorter announces what stands in the next chunk
_RULES = '-=~^*_`"'  # three at the start of a line draw a rule, or open a block of code
_SPACES = b"\t\n\v\f\r\x1c\x1d\x1e\x1f"  # of ASCII, beside the space itself
_HEADING_LINES = 12  # of a text, within which the headings at its top are: two, ruled off and with labels
_LONGEST_FENCE = 5  # signs; more of them are the line below a heading
# Blocks that stand beside the text, as Sphinx, MkDocs and GitHub name them.
_ASIDES = frozenset(
    """
    admonition attention caution danger deprecated error hint important info note seealso tip todo
    versionadded versionchanged warning
    """.split()  # noqa: SIM905 - a list of twenty lines else
)
# What MyST writes between fences though it is text.
_TEXT_FENCES = _ASIDES | {"details", "dropdown", "eval-rst"}
_PARTING = "*-+#|>"  # what a line begins with that is no part of the paragraph above
_VERSIONED = {
    "versionadded": "New in",
    "versionchanged": "Changed in",
    "deprecated": "Deprecated since",
}
# Directives whose argument is no word of the text: a language, a path, a module.
_TECHNICAL = frozenset(
    """
    code code-block codeauthor contents currentmodule figure highlight image include index literalinclude
    module only parsed-literal py:currentmodule py:module raw role sectionauthor sourcecode tab-set toctree
    """.split()  # noqa: SIM905 - a list of twenty lines else
)
_SPELT_ROLES = {":rfc:": "RFC ", ":pep:": "PEP "}
_TAG_CHARS = 300  # a longer one is no tag
_TAGS = frozenset(
    """
    a abbr b blockquote br center code dd del details div dl dt em figcaption figure font h1 h2 h3 h4 h5
    h6 hr i iframe img input ins kbd li mark nav ol p picture pre s samp section small source span
    strong sub summary sup svg table tbody td tfoot th thead tr tt u ul video
    """.split()  # noqa: SIM905 - a list of sixty lines else
)


def plain(chunk: ChunkRow) -> str:
    """A chunk's text on one line, without markup, and without the headings that are told beside it."""
    lines = chunk.text.split("\n")
    below = _headings_end(lines, chunk)
    line = _clean(lines[below:], chunk) if below < len(lines) else ""
    return line or _clean(lines, chunk) or _in_one_line(chunk.text) or chunk.title


def without_asides(chunk: ChunkRow) -> ChunkRow:
    """The chunk without notes, warnings and marks of versions; itself where it has none or is nothing else.

    They are blocks of Sphinx and MkDocs (`.. note::`, `!!! note`), between fences (```` ```{note} ````,
    `:::note`, `/// note`), or quotations as GitHub has them (`> [!NOTE]`).
    """
    if not chunk.prose or not _may_have_asides(chunk.text):
        return chunk
    kept: list[str] = []
    lines = chunk.text.split("\n")
    position = 0
    while position < len(lines):
        end = _aside_end(lines, position)
        if end == position:
            kept.append(lines[position])
            end += 1
        position = end
    if len(kept) == len(lines) or not "".join(kept).strip():
        return chunk
    return chunk._replace(text="\n".join(kept))


def _may_have_asides(text: str) -> bool:
    """Whether a text may hold what opens a block beside it; most have none, which one sign of it tells at
    once.
    """
    return (
        ".. " in text
        or ("{" in text and "```{" in text)
        or (":" in text and ":::" in text)
        or ("!" in text and ("!!! " in text or "> [!" in text))
        or ("?" in text and "??? " in text)
        or ("/" in text and "/// " in text)
    )


def _aside_end(lines: list[str], start: int) -> int:
    """The line behind the aside that begins on a line; that line itself where none does."""
    words = lines[start].strip()
    if _block_name(words) not in _ASIDES:
        return start
    margin = _margin(lines[start])
    for i, line in enumerate(lines[start + 1 :], start + 1):
        if words[0] in "`:/":
            if line.strip().startswith(words[:3]):
                return i + 1
        elif words[0] == ">":
            if not line.lstrip().startswith(">"):
                return i
        elif line.strip() and _margin(line) <= margin:
            return i
    return len(lines)


def _block_name(words: str) -> str:
    """What the block is called that a line opens; "" where it opens none."""
    if words.startswith(("```{", ":::", "/// ")):
        return words[3:].replace("{", " ").replace("}", " ").strip().partition(" ")[0].lower()
    if words.startswith("> [!"):
        return words[4:].partition("]")[0].lower()
    if words.startswith(("!!! ", "??? ")):
        return words[4:].partition(" ")[0].lower()
    return words[3:].partition("::")[0] if words.startswith(".. ") and "::" in words else ""


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _clean(lines: list[str], chunk: ChunkRow) -> str:
    """Some lines of a chunk on one, without markup."""
    marked = _may_be_marked(chunk.text)
    if marked or not "".join([line[:1] for line in lines]).isalnum():  # no line begins with a sign
        lines = list(_unmarked_lines(lines, chunk.prose, marked))
    return _in_one_line(" ".join(filter(None, lines)))


def _headings_end(lines: list[str], chunk: ChunkRow) -> int:
    """How many lines at the top are headings that stand above the chunk, with the labels and rules above
    them.
    """
    names = {chunk.title, *chunk.heading.split(" > ")}
    end = 0
    for number, line in enumerate(lines[:_HEADING_LINES], 1):
        name = line.strip("# \t")
        if name not in names and _may_be_marked(name):
            name = _without_inline(name).strip()
        if name in names:
            end = number
        elif name[:1].isalnum() or (name and _unmarked(line).strip() and _without_directive(line).strip()):
            break
    return end


def _in_one_line(text: str) -> str:
    """The text with a single space wherever there is space, none at the ends."""
    spaced = "  " in text or not text.isascii() or len(text.encode().translate(None, _SPACES)) < len(text)
    return " ".join(text.split()) if spaced else text.strip(" ")


def is_bare(chunk: ChunkRow) -> bool:
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
    return _is_label(chunk.text)


def _is_label(text: str) -> bool:
    """Whether what stands below the headings is no word, or a few before a colon."""
    words = ""
    lines = [line for line in text.split("\n") if line[:1] != "#"]
    for line in _unmarked_lines(lines, prose=True, inline=_may_be_marked(text)):
        words += "".join(line.split())
        if len(words) >= LABEL_CHARS:
            return False
    return not words or words.endswith(":")


def _is_adorned_heading(chunk: ChunkRow) -> bool:
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
    """The lines without markup; those of a paragraph as one where some may have it beyond their beginnings
    (`inline`), for a link may go on in the next. What stands between fences is code and stays as it is.
    """
    if not prose:
        yield from [line if line.lstrip()[:1].isalnum() else _unmarked(line) for line in lines]
        return
    lines = lines[_front_matter_end(lines) :]
    if not inline:
        yield from _without_marks(lines)
        return
    yield from _outside_code(lines) if any("```" in line for line in lines) else _paragraphs(lines)


def _outside_code(lines: list[str]) -> Iterator[str]:
    """Lines among which are fences: what is code stays as it is."""
    fenced = _begins_in_code(lines)
    texts, options = 0, False  # open fences that hold text; whether a line may be an option of one
    stretch: list[str] = []  # lines of one kind
    for line in lines:
        options = options and _is_option(line)
        if options:
            continue
        if not _is_fence(line):
            stretch.append(line)
            continue
        yield from stretch if fenced else _paragraphs(stretch)
        stretch = []
        name, _, title = line.strip().lstrip("`{").partition("}")
        if fenced:
            fenced = False
        elif texts and not name:
            texts -= 1
        else:
            fenced = name not in _TEXT_FENCES
            texts += not fenced
            options = "{" in line  # lines like `:name: value` at the top
            stretch = [] if fenced or not title else [f".. {name}:: {title}"]
    yield from stretch if fenced else _paragraphs(stretch)


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """The paragraphs of prose, each on one line, and the items of lists, without markup."""
    paragraph: list[str] = []
    for line in _without_marks(lines):
        if not line[:1].isalnum() and (not line or line.lstrip()[:1] in _PARTING):
            if paragraph:
                yield _without_inline(" ".join(paragraph))
            paragraph = [line] if line else []
        else:
            paragraph.append(line)
    if paragraph:
        yield _without_inline(" ".join(paragraph))


def _without_marks(lines: list[str]) -> Iterator[str]:
    """The lines without the marks at their beginnings and ends; empty ones for what says nothing."""
    directive = False  # whether a line may be an option of the one above
    for line in lines:
        if line[:1].isalnum() or line.lstrip()[:1].isalnum():  # there is no mark before it
            directive = False
        elif directive and _is_option(line):
            continue
        else:
            directive = line.lstrip().startswith(".. ") and "::" in line
            line = _unmarked(line)
            line = _without_directive(line) if line else ""
        if line.endswith("::"):  # it announces a block of code
            line = line[:-1] if line.strip() != "::" else ""
        yield _without_attributes(line) if "{" in line else line


def _is_fence(line: str) -> bool:
    """Whether a line opens or closes a block of code; reStructuredText draws longer ones below headings."""
    if "```" not in line:
        return False
    text = line.strip()
    return text.startswith("```") and (len(text) <= _LONGEST_FENCE or text != "`" * len(text))


def _is_option(line: str) -> bool:
    """Whether a line is `:name: value`, of a directive above."""
    text = line.strip()
    name, mark, value = text[1:].partition(":")
    return text.startswith(":") and mark == ":" and " " not in name and not value.startswith("`")


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
    if len(text) > 3 and text.rstrip() == text[0] * len(text.rstrip()):
        return ""
    if text.startswith(">"):
        return line if text.startswith(">>> ") else text[1:]  # that is the prompt of a session
    if text.startswith("|"):
        return _cells(text)
    if text.startswith("#"):
        named = text.lstrip("#")
        return named if named.startswith((" ", "\t")) and len(text) - len(named) <= 6 else line
    if text.startswith('"""'):  # a docstring begins on the line of its first sentence
        return text.strip('"')
    return "" if text[:1] in _RULES and text[:3] == text[:1] * 3 else line


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
        if not mark or " " in name:  # a footnote; else a label, a comment or a substitution
            return text.partition("] ")[2] if text.startswith(".. [") else ""
        version = _VERSIONED.get(name)
        if version is not None:
            return version + argument
        return "" if name in _TECHNICAL else argument
    if text.startswith(":") and text.count(":") >= 2:
        name, _, words = text[1:].partition(":")
        return line if " " in name or words.startswith("`") else words
    if text.startswith(("!!! ", "??? ", ":::", "/// ", "//// ")):
        return text.lstrip("!?:/ ").replace(" | ", " ")
    if text.startswith("///") and not text.strip("/"):
        return ""
    return "" if text.startswith("(") and text.endswith(")=") else line


def _without_inline(line: str) -> str:
    """The line without tags, targets of links, roles, emphasis and the marks of code."""
    if "<" in line:
        line = _without_tags(line)
    if "](" in line or "][" in line:
        line = _without_links(line)
    if "`" in line:
        line = _without_roles(line)
    elif "*" in line:
        line = _without_emphasis(line)
    return line


def _without_tags(line: str) -> str:
    """Without the tags of HTML. What else stands in angle brackets (`<file>`, an address, code) stays."""
    clean, read_to = "", 0
    code = _Code(line)
    last_comment_end = line.rfind("-->")
    start = line.find("<")
    while start >= 0:
        comment = line.startswith("<!--", start)
        end = line.find("-->" if comment else ">", start) if not comment or start < last_comment_end else -1
        short = 0 < end - start < _TAG_CHARS
        name = line[start + 1 : end].lstrip("/").split(" ")[0].rstrip("/").lower() if short else ""
        generic = (
            end == start + 2 and line[end - 1].isupper() and line[start - 1 : start].isalnum()
        )  # Result<A>
        tag = comment or (name in _TAGS and not generic)
        if end > 0 and tag and not code.holds(start):
            clean += line[read_to:start] + (" " if name in ("br", "td", "li", "p") else "")
            read_to = end + (3 if comment else 1)
        start = line.find("<", max(start + 1, read_to))
    return clean + line[read_to:]


def _without_links(line: str) -> str:
    """`[words](address)` and `[words][name]` as the words."""
    clean, read_to = "", 0
    while True:
        middle = line.find("]", read_to)
        while middle >= 0 and line[middle + 1 : middle + 2] not in ("(", "["):
            middle = line.find("]", middle + 1)
        if middle < 0:
            return clean + line[read_to:]
        start = line.rfind("[", read_to, middle)
        end = _address_end(line, middle + 2) if line[middle + 1] == "(" else line.find("]", middle + 2)
        opening = clean.rfind("[") if start < 0 else -1  # of a picture that is a link
        if end >= 0 and opening >= 0:
            clean, read_to = clean[:opening] + clean[opening + 1 :] + line[read_to:middle], end + 1
            continue
        if start < 0 or end < 0:
            clean, read_to = clean + line[read_to : middle + 2], middle + 2
            continue
        before = line[read_to:start]
        clean += (before[:-1] if before.endswith("!") else before) + line[start + 1 : middle]
        read_to = end + 1


def _address_end(line: str, start: int) -> int:
    """Where the parenthesis around an address closes, which may have pairs of them in it; -1: nowhere."""
    first = end = line.find(")", start)
    unclosed = 0
    while end >= 0:
        unclosed += line.count("(", start, end)
        if not unclosed:
            return end
        unclosed, start = unclosed - 1, end + 1
        end = line.find(")", start)
    return first


def _without_attributes(line: str) -> str:
    """Without what is said of the words before it for who lays the page out: `{#name}`, `{: .class }`."""
    clean, read_to = "", 0
    code = _Code(line)
    start = line.find("{")
    while start >= 0:
        end = line.find("}", start)
        named = line[start + 1 : end].removeprefix(":").strip()
        if end > 0 and named[:1] in ("#", ".") and named[1:2].isalpha() and not code.holds(start):
            clean, read_to = clean + line[read_to:start].rstrip(), end + 1
        start = line.find("{", start + 1)
    return clean + line[read_to:]


class _Code:
    """Tells of the places of a line, asked in order, whether they are between the marks of code."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._read_to = 0
        self._inside = False

    def holds(self, position: int) -> bool:
        """Of a place behind those asked before, at which no mark of code stands."""
        marks = self._line[self._read_to : position].replace("``", "`").count("`")
        self._inside ^= marks % 2 == 1
        self._read_to = position
        return self._inside


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
            start = _role_start(before)
            pieces[i - 1] = before[:start] + _SPELT_ROLES.get(before[start:], "")
        words, mark, _ = pieces[i].partition(" <")
        pieces[i] = words if mark and pieces[i].endswith(">") else pieces[i].lstrip("~!")
        # The mark of a link, or what stands between it and the rest of its word; not code between two marks.
        if pieces[i] and i + 1 < len(pieces) and pieces[i + 1][:1] in ("_", "\\"):
            pieces[i + 1] = pieces[i + 1].lstrip("_").removeprefix("\\ ").removeprefix("\\")
    if "*" in line:  # of the words between, not of a glob that is code
        pieces[::2] = _without_emphasis("`".join(pieces[::2])).split("`")
    return "".join(pieces)


def _role_start(before: str) -> int:
    """Where the role begins that a text ends in (`:py:class:`); its length where it ends in none."""
    start = len(before) - 1
    while True:
        colon = before.rfind(":", 0, start)
        if colon < 0 or not before[colon + 1 : start].replace("-", "").isalnum():
            return start if start < len(before) - 1 else len(before)
        start = colon


def _without_emphasis(line: str) -> str:
    """The line without pairs of `**` and of `*` around words: `**kwargs`, `src/**/*.py` and `2 * 3` are no
    such.
    """
    for mark in ("**", "*"):
        if mark in line:
            line = _without_pairs(line, mark)
    return line


def _without_pairs(line: str, mark: str) -> str:
    clean, read_to, size = "", 0, len(mark)
    backwards = line[::-1]
    start = line.find(mark)
    while start >= 0:
        end = line.find(mark, start + size)
        if end < 0:
            break
        if _opens(line, start, size) and _opens(backwards, len(line) - end - size, size):
            clean += line[read_to:start] + line[start + size : end]
            read_to = end + size
            end = line.find(mark, read_to)
        start = end
    return clean + line[read_to:]


def _opens(line: str, start: int, size: int) -> bool:
    """Whether the mark there has a word behind it and none before: read backwards, whether it ends one.

    A single star has a letter there: `*.py|*.md` are globs.
    """
    before, behind = line[start - 1 : start] if start else "", line[start + size : start + size + 1]
    if before.isalnum() or before in ("/", "*") or behind.isspace() or behind in ("", "/", "*"):
        return False
    return size > 1 or behind.isalnum()
