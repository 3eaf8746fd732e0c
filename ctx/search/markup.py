"""Remove markup from prose: front matter, headings, tables, tags, links, roles and directives."""

import re
from collections.abc import Iterator
from textwrap import dedent

from ctx.models import ChunkRow

_MAX_BARE_CHARS = 600  # a longer chunk has more than a heading or label
LABEL_CHARS = 25  # a text up to this long that ends in a colon introduces the next chunk
_HEADING_LINES = 12  # lines at the top of a chunk in which to look for headings
# Names of admonitions (blocks apart from the main text) in Sphinx, MkDocs and GitHub.
_ASIDE_NAMES = (
    "admonition", "attention", "caution", "danger", "deprecated", "error", "hint", "important", "info",
    "note", "seealso", "tip", "todo", "versionadded", "versionchanged", "warning",
)  # fmt: skip
_TEXT_FENCES = {*_ASIDE_NAMES, "details", "dropdown", "eval-rst"}  # MyST fences that hold text, not code
_VERSIONS = {"versionadded": "New in", "versionchanged": "Changed in", "deprecated": "Deprecated since"}
# Directives whose argument is not text: a language, a path, a module.
_TECHNICAL = {
    "code", "code-block", "codeauthor", "contents", "currentmodule", "figure", "highlight", "image",
    "include", "index", "literalinclude", "module", "only", "parsed-literal", "py:currentmodule", "py:module",
    "raw", "role", "sectionauthor", "sourcecode", "tab-set", "toctree",
}  # fmt: skip
_TAGS = (
    "a|abbr|b|blockquote|br|center|code|dd|del|details|div|dl|dt|em|figcaption|figure|font|h[1-6]|hr|i|iframe|img|"
    "input|ins|kbd|li|mark|nav|ol|p|picture|pre|s|samp|section|small|source|span|strong|sub|summary|sup|svg|table|"
    "tbody|td|tfoot|th|thead|tr|tt|u|ul|video"
)

# `.. note::`, `!!! note`, ```` ```{note} ````, `:::note`, `/// note`, `> [!NOTE]`
_ASIDE = re.compile(
    r"(?:(?:```\{|:::[ {]*|/// +|!!! |\?\?\? |> \[!)(?:NAMES)(?![\w-])|\.\. (?:NAMES)::)".replace(
        "NAMES", "|".join(_ASIDE_NAMES)
    ),
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*```(?!```+\s*$)")  # longer runs of ` underline a heading in reStructuredText
_OPTION = re.compile(r"\s*:[^: ]*:(?!`)")  # `:name: value` below a directive
# Matches a line that does not continue the paragraph above.
_PARTED = re.compile(r"\s*(?:[*\-+#|>]|\d{1,3}[.)]\s|$)")
_ITEM = re.compile(r"\s*(?:[*\-+]|\d{1,3}[.)])\s")
_DIRECTIVE = re.compile(r"\s*\.\. ([\w:-]+)::")
_CODE_DIRECTIVES = {"code", "code-block", "sourcecode", "parsed-literal", "prompt", "literalinclude"}
CELL_MARK = " · "  # between the cells of a table's row
_RULE = re.compile(r"(\W|_)\1{3,}\s*$|([-=~^*_`])\2\2")
_CODE = r"(?<!`)(?P<ticks>`++).*?(?<!`)(?P=ticks)(?!`)"
# Matches markup to remove: HTML tags, comments and `{#name}`, `{: .class }`, except in code. Does not match
# other text in angle brackets (`<file>`, an address, `Result<A>`).
_TAG = re.compile(
    rf"(?P<code>{_CODE})|<!--.*?-->"
    rf"|(?!(?<=[^\W_])<[A-Z]>)</?(?P<tag>(?i:{_TAGS}))/?(?: [^>]{{0,290}})?>"
    r"|[^\S\n]*\{:?\s*[#.][^\W\d_][^}]*\}"
)
_SPACED_TAGS = ("br", "td", "li", "p")
# `[words](address)`, `[words][name]`, and images (with `!` in front). Addresses may have pairs of
# parentheses.
_LINK = re.compile(
    r"!?\[((?:[^\[\]]++|\[[^\[\]]*+\])*+)\](?:\((?:[^()]++|\([^()]*+\))*+\)|\([^)]*+\)|\[[^\]]*+\])"
)
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")  # `[[page|words]]`
_CALLOUT = re.compile(r"\[![A-Za-z]+\][+-]?[ \t]*")  # the mark in `> [!NOTE]`
_TAB = re.compile(r'===[!+]*[ \t]+"([^"]*)"')
_NAMED_ASIDE = re.compile(r'(?:!!!|\?\?\?\+?)[ \t]+[\w -]+?[ \t]+"([^"]+)"')
_INCLUDE = re.compile(r"\s*(?:--8<--|;--8<--)")
# roff, the markup of manual pages: `.SH OPTIONS`, `.It Fl f Ar file`, `\fBword\fR`, `\-`.
_REQUEST = re.compile(
    r"[.'](?:[A-Z][A-Za-z]{0,2}|ad|br|de|fi|hy|ie|if|in|ne|nf|nh|sp|so|ti)(?=\s|$)|[.']\\\""
)
_ROFF_SHARE = 0.2  # minimum share of lines that are requests, for a text to be roff
_FONT = re.compile(r"\\f(?:\[\w*\]|\(\w\w|\w)|\\&|\\[|^,/]|\\s[-+]?\d")
_ROFF_CHARACTERS = {
    "\\-": "-",
    "\\(bu": "*",
    "\\(em": "--",
    "\\(aq": "'",
    "\\e": "\\",
    "\\ ": " ",
    "\\(co": "(c)",
}
_ALTERNATING = {"BI", "BR", "IB", "IR", "RB", "RI"}  # alternating fonts: the words are joined
_MACRO = re.compile(r"(?<!\S)(?:Ar|Cm|Dv|Em|Er|Ev|Fa|Fn|Ic|Li|Nm|Ns|Oc|Oo|Op|Pa|Pq|Ql|Sy|Va|Xr)(?!\S)")
# Inline code with the role before it (`:ref:` or `{ref}`) and the `_` or `\ ` after it.
_ROLE = re.compile(rf"(?P<role>\{{[^{{}}`]*\}}|(?::[^\W_][\w-]*)+:)?(?P<code>{_CODE})(?:_*+(?:\\ ?)?)")
_SPELT_ROLES = {":rfc:": "RFC ", ":pep:": "PEP "}
# `**words**` and `*words*`, but not `**kwargs`, `src/**/*.py`, `2 * 3` or code.
_STRONG = re.compile(
    r"(`[^`]*`)|(?<![^\W_])(?<![/*])\*\*(?![\s/*])((?:`[^`]*`|[^*`]|\*(?!\*))+?)(?<![\s/*])\*\*(?![^\W_]|[/*])"
)
_EMPHASIS = re.compile(
    r"(`[^`]*`)|(?<![^\W_])(?<![/*])\*(?=[^\W_])((?:`[^`]*`|[^*`])+?)(?<=[^\W_])\*(?![^\W_]|[/*])"
)


def plain(chunk: ChunkRow) -> str:
    """A chunk's text without markup and without the headings at its top. Each paragraph, list item, table row
    or line of code is one line.
    """
    lines = chunk.text.split("\n")
    below = lines[_headings_end(lines, chunk) :]
    return _plain_lines(below, chunk) or _plain_lines(lines, chunk) or chunk.text.strip() or chunk.title


def without_asides(chunk: ChunkRow) -> ChunkRow:
    """The chunk without notes, warnings and version marks; the same chunk if it has none, or nothing else."""
    if not chunk.prose or not _ASIDE.search(chunk.text):
        return chunk
    main_lines: list[str] = []
    lines = chunk.text.split("\n")
    position = 0
    while position < len(lines):
        end = _aside_end(lines, position)
        if end == position:
            main_lines.append(lines[position])
            end += 1
        position = end
    if len(main_lines) == len(lines) or not "".join(main_lines).strip():
        return chunk
    return chunk._replace(text="\n".join(main_lines))


def _aside_end(lines: list[str], start: int) -> int:
    """The index after the last line of the admonition that begins on line `start`; `start` if none begins
    there.
    """
    opening = lines[start].strip()
    if not _ASIDE.match(opening):
        return start
    margin = _margin(lines[start])
    for i, line in enumerate(lines[start + 1 :], start + 1):
        if opening[0] in "`:/":
            if line.strip().startswith(opening[:3]):
                return i + 1
        elif opening[0] == ">":
            if not line.lstrip().startswith(">"):
                return i
        elif line.strip() and _margin(line) <= margin:
            return i
    return len(lines)


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain_lines(lines: list[str], chunk: ChunkRow) -> str:
    return "\n".join(line.rstrip() for line in _unmarked_lines(lines, chunk.prose) if line.strip())


def _headings_end(lines: list[str], chunk: ChunkRow) -> int:
    """How many lines at the top are the chunk's headings, including labels and rules between them."""
    names = {chunk.title, *chunk.heading.split(" > ")} - {""}
    end = 0
    for number, line in enumerate(lines[:_HEADING_LINES], 1):
        name = line.strip("# \t")
        words = _without_inline(name).strip()
        if name in names or words in names:
            end = number
        elif words and _without_directive(_unmarked(line)).strip():
            break
    return end


def is_bare(chunk: ChunkRow) -> bool:
    """Whether a prose chunk is only a heading, front matter or a label."""
    text = chunk.text
    if not chunk.prose or (len(text) > _MAX_BARE_CHARS and not text.startswith(("---", "+++"))):
        return False
    return _is_adorned_heading(chunk) or text.split() == chunk.heading.split() or _is_label(text)


def _is_label(text: str) -> bool:
    """Whether the text below the headings is empty or a few words that end in a colon."""
    words = ""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for line in _unmarked_lines(lines, prose=True):
        words += "".join(line.split())
        if len(words) >= LABEL_CHARS:
            return False
    return not words or words.endswith(":")


def _is_adorned_heading(chunk: ChunkRow) -> bool:
    """Whether a chunk is only a reStructuredText heading, with its underline, and labels."""
    text = chunk.text.rstrip()
    if text[-1:].isalnum() or text[-3:] != text[-1:] * 3:
        return False
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line)) and not line.startswith(".. _")]
    return len(lines) == 1 and _without_inline(lines[0]).strip() in (
        chunk.heading.rpartition(" > ")[2],
        chunk.title,
    )


def _unmarked_lines(lines: list[str], prose: bool) -> Iterator[str]:
    """The lines without markup. Each paragraph of prose becomes one line, because a link may span two lines.
    Lines of code do not change.
    """
    if not prose:
        yield from map(_unmarked, lines)
        return
    lines = lines[_front_matter_end(lines) :]
    if _is_roff(lines):
        yield from _without_roff(lines)
        return
    fenced = _begins_in_code(lines)
    text_fences = 0  # number of open fences that contain text
    options = False  # whether the line may be an option of the fence above
    stretch: list[str] = []  # lines that are all code or all text
    for line in lines:
        options = options and bool(_OPTION.match(line))
        if options:
            continue
        if not _FENCE.match(line):
            stretch.append(line)
            continue
        yield from _dedented(stretch) if fenced else _text_and_code(stretch)
        stretch = []
        name, _, title = line.strip().lstrip("`{").partition("}")
        if fenced:
            fenced = False
        elif text_fences and not name:
            text_fences -= 1
        elif name in _TEXT_FENCES:
            text_fences += 1
            options = "{" in line
            stretch = [f".. {name}:: {title}"] if title else []
        else:
            fenced, options = True, "{" in line
    yield from _dedented(stretch) if fenced else _text_and_code(stretch)


def _is_roff(lines: list[str]) -> bool:
    requests = sum(bool(_REQUEST.match(line)) for line in lines)
    return requests > 1 and requests >= _ROFF_SHARE * len(lines)


def _without_roff(lines: list[str]) -> Iterator[str]:
    """The paragraphs of a manual page, each on one line."""
    paragraph: list[str] = []
    for line in lines:
        request, _, words = line.partition(" ") if _REQUEST.match(line) else ("", "", line)
        name = request[1:]
        if request[1:2] == "\\" or name in ("TH", "Dd", "Dt", "Os") or (name[:1].islower() and name != "br"):
            continue  # a comment, the page header, or layout
        if name == "Fl" or " Fl " in f" {words} ":
            words = re.sub(r"(?<!\S)Fl\s+", "-", f"Fl {words}" if name == "Fl" else words)
        joint = "" if name in _ALTERNATING else " "
        words = (
            joint.join(part[0] or part[1] for part in re.findall(r'"([^"]*)"|(\S+)', words))
            if name
            else words
        )
        words = _FONT.sub("", _MACRO.sub("", words) if name else words)
        for escape, character in _ROFF_CHARACTERS.items():
            words = words.replace(escape, character)
        if (
            name in ("SH", "SS", "Sh", "Ss", "TP", "PP", "Pp", "IP", "LP", "It", "P", "br")
            or not line.strip()
        ):
            yield " ".join(" ".join(paragraph).split())
            paragraph = []
        paragraph.append(words)
    yield " ".join(" ".join(paragraph).split())


def _text_and_code(lines: list[str]) -> Iterator[str]:
    """The paragraphs of prose, and the code blocks in it that are marked only by indentation."""
    text: list[str] = []
    position = 0
    while position < len(lines):
        end = _literal_end(lines, position)
        if end > position:
            yield from _paragraphs(text)
            text = []
            yield from _dedented(lines[position:end])
            position = end
        else:
            text.append(lines[position])
            position += 1
    yield from _paragraphs(text)


def _literal_end(lines: list[str], start: int) -> int:
    """The index after the last line of the indented code block that begins on line `start`; `start` if none
    begins there.
    """
    margin = _margin(lines[start])
    above = next((line for line in reversed(lines[:start]) if line.strip()), "")
    if not (lines[start].strip() and margin > _margin(above) and not (start and lines[start - 1].strip())):
        return start
    directive = _DIRECTIVE.match(above)
    if directive is not None and directive[1] not in _CODE_DIRECTIVES:
        return start
    announced = above.rstrip().endswith("::") or directive is not None
    # In Markdown four columns of indentation are code, except within a list or another indented block.
    if not announced and (margin - _margin(above) < 4 or _margin(above) or not above or _PARTED.match(above)):
        return start
    if not announced and above.startswith(("!", "?", ":", "/", "[", "=")):
        return start
    inside = _margin(above)
    end = start
    for number, line in enumerate(lines[start:], start):
        if line.strip():
            if _margin(line) <= inside:
                break
            end = number + 1
    return end


def _dedented(lines: list[str]) -> Iterator[str]:
    yield from dedent("\n".join(lines)).split("\n")


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """The paragraphs and list items of prose without markup, each on one line."""
    paragraph: list[str] = []
    for line in _without_directives(lines):
        row = CELL_MARK in line
        if row or _PARTED.match(line):
            yield _joined(paragraph)
            paragraph = []
        if row:
            yield _without_inline(line)
        else:
            paragraph.append(line)
    yield _joined(paragraph)


def _joined(paragraph: list[str]) -> str:
    text = _without_inline(" ".join(paragraph))
    indent = "  " * (_margin(text) // 2) if _ITEM.match(text) else ""
    return indent + " ".join(text.split())


def _without_directives(lines: list[str]) -> Iterator[str]:
    """The lines without markup at their beginnings and without directive options."""
    directive = False  # whether the line may be an option of a directive above
    for line in lines:
        if directive and _OPTION.match(line):
            continue
        directive = line.lstrip().startswith(".. ") and "::" in line
        line = _without_directive(_unmarked(line))
        if line.endswith("::"):  # the line introduces a block of code
            line = line[:-1] if line.strip() != "::" else ""
        yield line


def _begins_in_code(lines: list[str]) -> bool:
    """Whether a chunk starts inside a fenced code block: it has an odd number of fences, and the first names
    no language.
    """
    fences = [line.strip() for line in lines if _FENCE.match(line)]
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
    """The line without the mark of a heading, quotation, table or docstring; "" for a rule."""
    text = line.lstrip(" \t")
    if tab := _TAB.match(text):
        return f"{tab[1]}:"
    if _RULE.match(text) or _INCLUDE.match(text):
        return ""
    if text.startswith("|"):
        return _cells(text)
    if text.startswith(">") and not text.startswith(">>> "):  # `>>>` is a Python prompt
        return _CALLOUT.sub("", text[1:])
    if text.startswith('"""'):
        return text.strip('"')
    return re.sub(r"^#{1,6}(?=[ \t])", "", text) if text.startswith("#") else line


def _cells(row: str) -> str:
    """The cells of a table row, joined; "" for a separator row."""
    if not row.strip("|-:+= \t"):
        return ""
    cells = [cell.strip() for cell in row.strip("| \t").replace("\\|", "\0").split("|")]
    words = CELL_MARK.join(filter(None, cells)).replace("\0", "|")
    return f"{words};" if words[-1:].isalnum() else words


def _without_directive(line: str) -> str:
    """The text of a reStructuredText, MyST or MkDocs line; "" for a label or a directive without text."""
    text = line.strip()
    if text.startswith(".. "):
        name, mark, argument = text[3:].partition("::")
        if not mark or " " in name:  # keep a footnote's text; drop a label, comment or substitution
            return text.partition("] ")[2] if text.startswith(".. [") else ""
        version = _VERSIONS.get(name)
        if version is not None:
            return version + argument
        return "" if name in _TECHNICAL else argument
    if text.startswith(":") and text.count(":") >= 2:
        name, _, words = text[1:].partition(":")
        return line if " " in name or words.startswith("`") else words
    if aside := _NAMED_ASIDE.match(text):
        return f"{aside[1]}:"
    if text.startswith(("!!! ", "??? ", ":::", "/// ", "//// ")):
        return text.lstrip("!?:/ ").replace(" | ", " ")
    if text.startswith("///") and not text.strip("/"):
        return ""
    return "" if text.startswith("(") and text.endswith(")=") else line


def _without_inline(line: str) -> str:
    """The line without tags, link targets, roles, emphasis and backticks."""
    if "<" in line or "{" in line:
        line = _TAG.sub(_without_tag, line)
    if "[[" in line:
        line = _WIKI_LINK.sub(r"\1", line)
    if "](" in line or "][" in line:
        line = _LINK.sub(r"\1", _LINK.sub(r"\1", line))  # twice, because a link's text may be an image
    if "*" in line:
        line = _EMPHASIS.sub(r"\1\2", _STRONG.sub(r"\1\2", line))
    return _ROLE.sub(_without_role, line).replace("`", "") if "`" in line else line


def _without_tag(match: re.Match[str]) -> str:
    tag = (match["tag"] or "").lower()
    return match["code"] or (" " if tag in _SPACED_TAGS else "")


def _without_role(match: re.Match[str]) -> str:
    """The text of a role or link, such as `:ref:`text <target>`` or `` `text <address>`_ ``; else the code
    without backticks.
    """
    code = match["code"].strip("`")
    if len(match["ticks"]) == 1:
        words, target, _ = code.partition(" <")
        code = words if target and code.endswith(">") else code.lstrip("~!")
    return _SPELT_ROLES.get(match["role"] or "", "") + code
