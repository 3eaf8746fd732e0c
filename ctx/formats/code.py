"""Source code and configuration: definitions become headings, so that a chunk of a method has the path `Class
> method`.

For languages without a grammar, a regular expression finds lines with definitions, and indentation shows the
nesting. A wrong guess puts a chunk boundary in the wrong place but loses no text.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from ctx.code.grammars import GRAMMARS
from ctx.code.symbols import Definition, definitions
from ctx.formats.base import Parsed, clipped
from ctx.models import Heading
from ctx.text.analyze import DEFINING
from ctx.text.filetypes import is_code

NO_BORDER = frozenset(("variable", "constant", "field", "property"))
MAX_DEPTH = 5  # definitions nested deeper get no heading


class _Language(NamedTuple):
    """The patterns of a language. `definition` matches at the start of a line; "\\Z" in it matches the end of
    the line.

    Group 1 of `definition` is the indentation, the other groups are parts of the name. Lines that start with
    one of the texts in `comment` belong to the definition below them. `scoped`: indentation shows where a
    definition ends.
    """

    definition: str
    comment: tuple[str, ...] = ("//", "/*", "*", "*/", "@", "#[", "[")
    scoped: bool = True


_C_LIKE = ("//", "/*", "*", "*/")
_WORD = r"[A-Za-z_$][\w$]*"
_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|override|virtual|sealed|partial|async"
    r"|open|data|inline|suspend|"
    r"synchronized|native|readonly|unsafe|extern|new|default|export|declare|const|implicit|case|lazy"
    r"|operator|infix|tailrec|strictfp|"
    r"fileprivate|mutating|class(?=[ \t]+func)|required|convenience|actual|expect|inner|value|annotation"
    r"|companion|enum(?=[ \t]+class))[ \t]+)*"
)
_JAVASCRIPT = (
    r"([ \t]{0,60})(?:" + _MODIFIERS +
    r"(?:function\*?[ \t]*|class[ \t]+|interface[ \t]+|enum[ \t]+"
    r"|namespace[ \t]+|module[ \t]+|type[ \t]+(?=\w+[^=\n]{0,200}=))(" + _WORD + r")"
    r"|" + _MODIFIERS + r"(?:const|let|var)[ \t]+(" + _WORD + r")[^=\n]{0,120}=[ \t]*(?:async[ \t]*)?"
    r"(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|" + _WORD + r"[ \t]*=>)"
    r"|(?<=[ \t])(?:(?:public|private|protected|static|async|get|set|override|readonly"
    r"|abstract)[ \t]+)*(?:\*[ \t]*)?(?!(?:if|for|while|switch|catch|return|function|await|new|typeof|else"
    r"|do|with|super|throw|case)\b)(#?" + _WORD + r")[ \t]*(?:<[^<>\n]{0,80}>)?\([^()\n]{0,200}\)"
                                                  r"[ \t]*(?::[^{};\n]{1,120})?\{[ \t]*(?:\Z|//|\}))"
)  # fmt: skip
_JAVA = (
    r"([ \t]{0,60})(?:" + _MODIFIERS + r"(?:class|interface|enum|record|struct|object|trait|@interface"
                                       r"|namespace|protocol|extension|actor|mixin|typealias"
                                       r"|module)[ \t]+(\w+)"
    r"|" + _MODIFIERS + r"(?:fun|def|func)[ \t]+(?:<[^<>\n]{0,80}>[ \t]*)?(?:[\w<>?]+\.)?(`?\w+)"
    r"|" + _MODIFIERS + r"(?!(?:return|else|new|throw|if|for|while|switch|catch|case|await|yield|using"
                        r"|package|import|implementation)\b)"
                        r"(?:<[^<>\n]{0,80}>[ \t]*)?[\w.<>\[\],?&]{1,80}[ \t]+(\w+)"
                        r"[ \t]*\([^;=\n]{0,300}(?:\{[ \t]*\}?|,|[)(]|throws[^;\n]*\{?)[ \t]*\Z"
    r"|(?:(?:public|private|protected|internal)[ \t]+)(\w+)[ \t]*\([^;=\n]{0,300}\{?[ \t]*\Z)"
)  # fmt: skip
# Media type -> patterns. A language is missing here if its grammar is always installed.
_LANGUAGES: Mapping[str, _Language] = {
    "text/javascript": _Language(_JAVASCRIPT),
    "text/x-typescript": _Language(_JAVASCRIPT),
    "text/x-scala": _Language(_JAVA),
    "text/x-swift": _Language(_JAVA),
    "text/x-dart": _Language(_JAVA),
    "text/x-groovy": _Language(_JAVA),
    "text/x-crystal": _Language(r"([ \t]{0,60})(?:def[ \t]+(?:self\.)?(\w+[?!=]?)"
                                           r"|(?:class|module|struct|macro)[ \t]+([\w:]+))", ("#", "@[")),
    "text/x-lua": _Language(r"([ \t]{0,60})(?:(?:local[ \t]+)?function[ \t]+([\w.:]+)"
                                   r"|(?:local[ \t]+)?([\w.\[\]\"']+)[ \t]*=[ \t]*function\b)", ("--",)),
    "text/x-shellscript": _Language(r"([ \t]{0,60})(?:function[ \t]+([\w:.-]+)"
                                             r"|([\w:.-]+)[ \t]*\([ \t]*\))[ \t]*(?:\{|\(|\Z)?", ("#",)),
    "text/x-perl": _Language(r"([ \t]{0,60})(?:sub[ \t]+(\w+)|package[ \t]+([\w:]+))", ("#",)),
    "text/x-r": _Language(r"([ \t]{0,60})([\w.]+)[ \t]*(?:<-|=)[ \t]*function\b", ("#",)),
    "text/x-julia": _Language(r"([ \t]{0,60})(?:@\w+[ \t]+)?(?:(?:mutable[ \t]+)?struct|function"
                                       r"|macro|module|abstract[ \t]+type)[ \t]+([\w.!]+)", ("#", "@")),
    "text/x-elixir": _Language(r"([ \t]{0,60})(?:defp?|defmacrop?|defmodule|defprotocol|defimpl"
                                         r"|test|describe)[ \t]+\"?([\w.?! ]{1,80})", ("#", "@")),
    "text/x-erlang": _Language(r"()(?!(?:if|case|begin|fun|receive|try)\b)([a-z]\w*)\([^\n]*->",
    ("%",), scoped=False),
    "text/x-haskell": _Language(r"()(?:(?:data|newtype|class|instance"
                                           r"|type)[ \t]+([^=\n]{1,80}?)[ \t]*(?:=|where\b|\Z)"
                                           r"|([a-z_][\w']*)[ \t]*::)", ("--", "{-"), scoped=False),
    "text/x-ocaml": _Language(r"([ \t]{0,60})(?:let(?:[ \t]+rec)?|and|type|module(?:[ \t]+type)?"
                                       r"|class|exception|external)[ \t]+([\w']+)", ("(*", "@"),
                                       scoped=False),
    "text/x-clojure": _Language(r"()\((?:def\w*|ns)[ \t]+(?:\^\S+[ \t]+)?([^\s()\[\]]+)", (";",)),
    "text/x-common-lisp": _Language(r"()\((?:def\w+|cl-def\w+|define(?:-\w+)?)[ \t]+\(?([^\s()]+)",
    (";",)),
    "text/x-zig": _Language(r"([ \t]{0,60})(?:pub[ \t]+)?(?:export[ \t]+|inline[ \t]+"
                                   r"|extern[ \t]+)?(?:fn[ \t]+(\w+)"
                                   r"|const[ \t]+(\w+)[ \t]*=[ \t]*(?:packed[ \t]+|extern[ \t]+)?(?:struct"
                                   r"|enum|union|opaque)\b)", ("//",)),
    "text/x-nim": _Language(r"([ \t]{0,60})(?:proc|func|method|iterator|template|macro"
                                   r"|converter)[ \t]+`?(\w+)", ("#",)),
    "application/sql": _Language(r"(?i:([ \t]{0,60})(?:create|alter)[ \t]+(?:or[ \t]+replace[ \t]+)"
                                        r"?(?:\w+[ \t]+){0,3}?(?:table|view|function|procedure|trigger|index"
                                        r"|type|schema|sequence)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+"
                                        r"|only[ \t]+)?([\w.\"`\[\]]+))", ("--", "/*", "*"), scoped=False),
    "text/x-powershell": _Language(r"([ \t]{0,60})(?:function|filter|class|enum)[ \t]+([\w:-]+)", ("#", "[")),
    "text/x-protobuf": _Language(r"([ \t]{0,60})(?:message|service|enum|rpc|extend)[ \t]+([\w.]+)",
    _C_LIKE),
    "application/graphql": _Language(r"()(?:extend[ \t]+)?(?:type|interface|input|enum|union"
                                                r"|scalar|query|mutation|subscription|fragment"
                                                r"|directive)[ \t]+(@?\w+)", ("#", '"""')),
    "text/x-terraform": _Language(r"()(?:(resource|data|module|variable|output|provider|locals"
                                               r"|terraform)[ \t]*(\"[^{\n]{1,120}?)?)[ \t]*\{", ("#", "//")),
    "text/x-makefile": _Language(r"()(?!\.PHONY|\.SUFFIXES)([\w./%-]{1,80})[ \t]*:(?![=:])", ("#",),
    scoped=False),
    "text/x-cmake": _Language(r"([ \t]{0,60})(?:function|macro)[ \t]*\([ \t]*(\w+)", ("#",)),
    "application/toml": _Language(r"()\[{1,2}[ \t]*([^\[\]\n]{1,120}?)[ \t]*\]{1,2}[ \t]*(?:#[^\n]*)"
                                          r"?\Z", ("#",), scoped=False),
    "text/x-ini": _Language(r"()\[([^\[\]\n]{1,120})\][ \t]*(?:[;#][^\n]*)?\Z", ("#", ";"),
    scoped=False),
    "application/yaml": _Language(r"()([A-Za-z_\"'][^:\n#]{0,78}):[ \t]*(?:[|>&!][^\n]*|#[^\n]*)?\Z",
    ("#",), scoped=False),
}  # fmt: skip


# Media type -> suffixes, whole names (with `/`) and programs in a script's first line (with `!`).
_CODE = {
    "text/x-python": "py pyi pyx pxd pyw bzl star /build.bazel /sconstruct !python",
    "text/javascript": "js jsx mjs cjs vue svelte astro !node !nodejs",
    "text/x-typescript": "ts tsx mts cts !deno !bun",
    "text/x-go": "go",
    "text/x-rust": "rs",
    "text/x-java": "java",
    "text/x-csharp": "cs",
    "text/x-kotlin": "kt kts",
    "text/x-scala": "scala sc",
    "text/x-swift": "swift",
    "text/x-dart": "dart",
    "text/x-groovy": "groovy gradle",
    "text/x-c": "c h m",
    "text/x-c++": "cc cpp cxx c++ hh hpp hxx h++ ino cu cuh mm inl ipp tcc",
    "text/x-ruby": "rb rake gemspec podspec /rakefile /gemfile !ruby",
    "text/x-crystal": "cr",
    "text/x-php": "php phtml !php",
    "text/x-lua": "lua !lua !luajit",
    "text/x-shellscript": "sh bash zsh ksh fish ebuild bats /.bashrc /.profile /.zshrc /pkgbuild "
    "!bash !sh !zsh !dash !ksh",
    "text/x-perl": "pl pm !perl",
    "text/x-r": "r !Rscript",
    "text/x-julia": "jl !julia",
    "text/x-elixir": "ex exs !elixir",
    "text/x-erlang": "erl hrl",
    "text/x-haskell": "hs lhs",
    "text/x-ocaml": "ml mli fs fsi",
    "text/x-clojure": "clj cljs cljc edn",
    "text/x-common-lisp": "lisp el scm ss rkt",
    "text/x-zig": "zig",
    "text/x-nim": "nim",
    "application/sql": "sql",
    "text/x-powershell": "ps1 psm1",
    "text/x-protobuf": "proto",
    "application/graphql": "graphql gql",
    "text/x-terraform": "tf hcl tfvars",
    "text/x-makefile": "mk mak /makefile /gnumakefile",
    "text/x-cmake": "cmake",
    "application/toml": "toml /pipfile /cargo.lock /poetry.lock /uv.lock",
    "text/x-ini": "ini cfg conf service desktop editorconfig /.gitconfig",
    "application/yaml": "yaml yml",
}
_PLAIN = {
    "application/json": "jsonc json5 geojson webmanifest map",
    "application/xml": "xml xsd xsl",
    "image/svg+xml": "svg",
    "text/css": "css scss less sass",
    "text/x-diff": "diff patch",
    "text/x-bat": "bat cmd",
    "text/x-asm": "asm s",
    "text/x-vim": "vim",
    "text/x-nix": "nix",
    "text/x-properties": "properties env",
    "text/x-fortran": "f90 f",
    "text/x-verilog": "v sv",
    "text/x-vhdl": "vhd",
    "text/x-glsl": "glsl",
    "text/x-d": "d",
    "text/x-pascal": "pas",
    "text/x-vb": "vb",
    "text/x-tcl": "tcl",
    "text/x-awk": "awk",
    "text/x-solidity": "sol",
    "text/x-lock": "lock",
}
_CODE_TYPES = {word: media_type for media_type, words in _CODE.items() for word in words.split()}
_PLAIN_TYPES = {suffix: media_type for media_type, suffixes in _PLAIN.items() for suffix in suffixes.split()}


def kind_of(suffix: str, name: str, text: str) -> str | None:
    """The media type of a code or data file, from its suffix, name or first line; None if unknown."""
    kind = _CODE_TYPES.get(f"/{name.lower()}") or _CODE_TYPES.get(suffix) or _of_program(text)
    if kind is None and name.lower().startswith(("dockerfile", "containerfile")):
        return "text/x-dockerfile"
    return kind or _PLAIN_TYPES.get(suffix)


def _of_program(text: str) -> str | None:
    """The media type of a script, from the program in its `#!` line; None if there is none."""
    if text[:2] != "#!":
        return None
    words = [word for word in text[2:300].split("\n")[0].split() if word[0] != "-" and "=" not in word]
    programs = [word.rsplit("/")[-1].rstrip("0123456789.") for word in words]
    if programs[:1] == ["env"]:
        del programs[0]
    return _CODE_TYPES.get(f"!{programs[0]}") if programs else None


def reader(media_type: str, grammar: bool = True) -> Callable[[str], Parsed]:
    """The reader for a media type: with its grammar, else with the patterns for its language, else one that
    returns plain lines.

    Grammars are native code, so files of unknown origin must be parsed in the reading process.
    """

    def parse(text: str) -> Parsed:
        parsed = definitions(text, media_type) if grammar and media_type in GRAMMARS else None
        if parsed is not None:
            return Parsed(text, tuple(_headings(text, parsed)), definitions=tuple(parsed))
        language = _LANGUAGES.get(media_type)
        names = definitions_by_patterns(text, media_type) if is_code(media_type) else ()
        headings: Iterable[Heading] = ()
        if language:
            headings = _headings_by_patterns(text, language)
        elif media_type in GRAMMARS:  # its grammar is missing
            headings = _headings(text, names)
        return Parsed(text, tuple(headings), definitions=names)

    return parse


# Text after a definition that belongs to the enclosing definition.
_CLOSING = re.compile(r"(?:[\s})\];,]|\bend\b)*")


def _headings(text: str, found: Sequence[Definition]) -> Iterator[Heading]:
    """A heading for each definition that starts a chunk, and an empty heading where other code follows a
    definition.
    """
    starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    open_: list[tuple[int, str]] = []  # (last line, qualified name) of the enclosing definitions

    def close(line: int) -> Iterator[Heading]:
        """Close the definitions that end before a line."""
        while open_ and open_[-1][0] < line:
            end, _ = open_.pop()
            until = min(line - 1, open_[-1][0] if open_ else line)
            if not _CLOSING.fullmatch(text, starts[end], starts[until]):
                yield Heading(starts[end], len(open_) + 1, "")

    for each in found:
        if each.kind in NO_BORDER:
            continue
        yield from close(each.start_line)
        if len(open_) >= MAX_DEPTH or (open_ and each.end_line > open_[-1][0]):
            continue
        outer = open_[-1][1] + "." if open_ else ""
        title = each.qualified.removeprefix(outer)
        open_.append((each.end_line, each.qualified))
        yield Heading(starts[each.start_line - 1], len(open_), clipped(title), clipped(each.signature))
    starts.append(len(text))
    yield from close(len(starts))


# A statement that is not indented deeper than the definition above, which has therefore ended. {0} is the
# definition's indentation. Closing brackets, labels and words that continue a block (`else`) do not count.
_STATEMENT = (
    r"\n[ \t]{{0,{0}}}(?!\w+:[ \t]*(?:\n|\Z)"
    r"|(?:end|rescue|ensure|else|elif|elsif|except|finally|begin|where|AS|BEGIN|END|EOF)\b)"
    r"[A-Za-z_$\"']"
)


@cache
def _statement(indent: int) -> re.Pattern[str]:
    return re.compile(_STATEMENT.format(indent))


# Further lines in JavaScript that define a name but do not start a chunk: top-level constants and variables,
# and `exports.find = function`.
_JAVASCRIPT_NAMES = (
    r"(?:export[ \t]+)?(?:declare[ \t]+)?(?:const|let|var)[ \t]+([A-Za-z_$][\w$]*)"
    r"|[ \t]{0,60}(?:[\w$]+\.)+([\w$]+)[ \t]*=[ \t]*(?:async[ \t]*)?"
    r"(?:function\b|\([^()\n]{0,200}\)[ \t]*=>)"
)
# For languages without a pattern: a defining keyword and a name, with up to four words before the keyword.
_ANY = r"[ \t]{0,60}(?:[^\s#*/\"']{1,60}[ \t]+){0,4}?(?:" + "|".join(DEFINING) + r")[ \t]+(\w+)"


def definitions_by_patterns(text: str, media_type: str) -> tuple[Definition, ...]:
    """The definitions that regular expressions find in a language without a grammar, in the order of their
    start.

    A definition ends before the next one that is not indented deeper.
    """
    found = sorted(set(_defined_names(text, media_type)))
    if not found:
        return ()
    lines = text.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    places = [(bisect_right(starts, offset), name, block) for offset, name, block in found]
    indents = [len(lines[line - 1]) - len(lines[line - 1].lstrip()) for line, _, _ in places]
    around: list[tuple[int, str]] = []  # (indentation, qualified name) of the enclosing definitions
    definitions: list[Definition] = []
    for i, ((line, name, block), indent) in enumerate(zip(places, indents, strict=True)):
        while around and around[-1][0] >= indent:
            around.pop()
        qualified = f"{around[-1][1]}.{name}" if around else name
        end = line
        if block:
            around.append((indent, qualified))
            later = (places[j][0] for j in range(i + 1, len(places)) if indents[j] <= indent)
            end = next((start for start in later if start > line), len(lines) + 1) - 1
            while end > line and not lines[end - 1].strip():
                end -= 1
        signature = clipped(lines[line - 1].strip().rstrip("{ "))
        word = _DEFINING_WORD.search(signature) if block else None
        kind = word[0] if word else "definition" if block else "variable"
        definitions.append(Definition(name, qualified, kind, signature, line, line, end))
    return tuple(definitions)


_DEFINING_WORD = re.compile(rf"\b(?:{'|'.join(DEFINING)})\b")


def _defined_names(text: str, media_type: str) -> Iterator[tuple[int, str, bool]]:
    """(offset, unqualified name, whether a block follows) of each definition, in no order."""
    lines = "\n" + text
    for pattern, block in _name_patterns(media_type):
        for match in pattern.finditer(lines):
            group = match.lastindex or 0
            name = _last_part(match[group])
            if name:
                yield match.start(group) - 1, name, block


@cache
def _name_patterns(media_type: str) -> list[tuple[re.Pattern[str], bool]]:
    language = _LANGUAGES.get(media_type)
    if language is None:
        return [(re.compile(rf"\n(?:{_ANY})"), True)]
    patterns = [(_definition_pattern(language), True)]
    if language.definition is _JAVASCRIPT:
        patterns.append((re.compile(rf"\n(?:{_JAVASCRIPT_NAMES})"), False))
    return patterns


def _last_part(name: str) -> str:
    """The last part of a name: `find` for `self.find` and `Store::find`; "" if it is not an identifier
    (`Display for Store`).
    """
    last = re.split(r"::|[.:]", name.strip("`\"'?!= "))[-1]
    return last if last.isidentifier() else ""


@cache
def _definition_pattern(language: _Language) -> re.Pattern[str]:
    return re.compile(r"\n(?:" + language.definition.replace(r"\Z", r"(?=\n|\Z)") + ")")


def _headings_by_patterns(text: str, language: _Language) -> list[Heading]:
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    open_: list[int] = []  # the indentation of the enclosing definitions, by level
    floor = 0  # text before this offset already belongs to a heading
    for match in _definition_pattern(language).finditer(lines):
        indent = len(match[1])
        parts = [part.strip("\"'` ") for part in match.groups()[1:] if part]
        name = clipped(" ".join(parts).replace('" "', "."))
        if not name:
            continue
        start = _with_comments(lines, match.start(), floor, language.comment)
        if language.scoped:
            floor = _close(lines, open_, start, language, headings, floor)
            start = max(start, floor)
        while open_ and open_[-1] >= indent:
            open_.pop()
        if len(open_) < MAX_DEPTH:
            open_.append(indent)
            headings.append(Heading(start, len(open_), name))
            floor = match.end()
    if language.scoped:
        _close(lines, open_, len(lines), language, headings, floor)
    return headings


def _with_comments(lines: str, at: int, floor: int, comment: tuple[str, ...]) -> int:
    """The start of the definition at offset `at`, including the comments and decorators right above it."""
    start = at
    while start > floor:
        above = lines.rfind("\n", floor, start)
        if above < 0:
            break
        line = lines[above + 1 : start].strip() if start - above < 1000 else ""
        if not line or not line.startswith(comment):
            break
        start = above
    return start


def _close(
    lines: str, open_: list[int], end: int, language: _Language, headings: list[Heading], floor: int
) -> int:
    """Ends the enclosing definitions that have ended before a statement between `floor` and `end`. Returns
    the new `floor`.
    """
    while open_ and (match := _statement(open_[-1]).search(lines, floor, end)) is not None:
        indent = match.end() - match.start() - 2  # the match is a newline, the indentation and one character
        while open_ and open_[-1] >= indent:
            open_.pop()
        position = _with_comments(lines, match.start(), floor, language.comment)
        headings.append(Heading(position, len(open_) + 1, ""))
        floor = match.end()
    return floor
