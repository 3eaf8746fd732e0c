"""Source code and configuration: definitions become headings, so that a chunk of a method has the path `Class
> method`.

For languages without a grammar, a regular expression finds lines with definitions, and indentation shows the
nesting. A wrong guess puts a chunk boundary in the wrong place but loses no text.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    one of `comment` belong to the definition below them. `scoped`: indentation shows where a definition ends.
    """

    media_type: str
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
_PYTHON = r"([ \t]{0,60})(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)"
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
                        r"|package|import)\b)(?:<[^<>\n]{0,80}>[ \t]*)?[\w.<>\[\],?&]{1,80}[ \t]+(\w+)"
                        r"[ \t]*\([^;=\n]{0,300}(?:\{[ \t]*\}?|,|[)(]|throws[^;\n]*\{?)[ \t]*\Z"
    r"|(?:(?:public|private|protected|internal)[ \t]+)(\w+)[ \t]*\([^;=\n]{0,300}\{?[ \t]*\Z)"
)  # fmt: skip
_C = (
    r"([ \t]{0,60})(?:(?:typedef[ \t]+)?(?:struct|union|enum(?:[ \t]+(?:class|struct))?|class|namespace"
    r"|concept)[ \t]+(?:[A-Z_]+(?:\([^()\n]{0,40}\))?[ \t]+)?(\w[\w:]*)[^;()=\n]{0,200}(?:\{[^\n]*)?\Z"
    r"|\#[ \t]*define[ \t]+(\w+)\("
    r"|(?<![ \t])(?!(?:return|else|typedef|using|case|goto|if|for|while|switch|do"
    r"|extern[ \t]+\")\b)(?:[A-Za-z_][\w:<>,~]*[ \t*&]+){0,6}((?:\w+::)*~?\w+"
    r"|operator[^\s(]{1,3})[ \t]*\((?:[^;=\n]{0,300}[^;\n])?\Z)"
)  # fmt: skip
_LANGUAGES: Mapping[str, _Language] = {
    "python": _Language("text/x-python", _PYTHON, ("#", "@")),
    "javascript": _Language("text/javascript", _JAVASCRIPT),
    "typescript": _Language("text/x-typescript", _JAVASCRIPT),
    "go": _Language("text/x-go", r"()(?:func[ \t]+(?:\([^()\n]{0,100}?\*?(\w+)(?:\[[^\]\n]{0,60}\])?\)[ \t]*)"
                                 r"?(\w+)[ \t]*[\[(]|type[ \t]+(\w+)[ \t])", ("//", "/*", "*")),
    "rust": _Language(
        "text/x-rust",
        r"([ \t]{0,60})(?:pub(?:[ \t]*\([^()\n]{0,40}\))?[ \t]+)?(?:(?:default|const|async|unsafe"
        r"|extern(?:[ \t]+\"[^\"\n]{0,20}\")?)[ \t]+)*"
        r"(?:(?:fn|struct|enum|trait|union|mod|type)[ \t]+(\w+)|macro_rules![ \t]*(\w+)"
        r"|impl\b(?:<[^{\n]{0,100}?>)?[ \t]+([^{\n]{1,120}?)[ \t]*(?:\{|where\b|\Z))",
        ("//", "/*", "*", "#["),
    ),
    "java": _Language("text/x-java", _JAVA),
    "csharp": _Language("text/x-csharp", _JAVA),
    "kotlin": _Language("text/x-kotlin", _JAVA),
    "scala": _Language("text/x-scala", _JAVA),
    "swift": _Language("text/x-swift", _JAVA),
    "dart": _Language("text/x-dart", _JAVA),
    "groovy": _Language("text/x-groovy", _JAVA),
    "c": _Language("text/x-c", _C, _C_LIKE),
    "cpp": _Language("text/x-c++", _C, (*_C_LIKE, "template")),
    "ruby": _Language("text/x-ruby", r"([ \t]{0,60})(?:def[ \t]+(?:self\.)?([\w.]+[?!=]?|[^\w\s(]{1,3})"
                                     r"|(?:class|module)[ \t]+([\w:]+))", ("#",)),
    "crystal": _Language("text/x-crystal", r"([ \t]{0,60})(?:def[ \t]+(?:self\.)?(\w+[?!=]?)"
                                           r"|(?:class|module|struct|macro)[ \t]+([\w:]+))", ("#", "@[")),
    "php": _Language("text/x-php",
    r"([ \t]{0,60})" + _MODIFIERS + r"(?:function[ \t]+&?(\w+)|(?:class|interface|trait|enum)[ \t]+(\w+))",
    (*_C_LIKE, "#")),
    "lua": _Language("text/x-lua", r"([ \t]{0,60})(?:(?:local[ \t]+)?function[ \t]+([\w.:]+)"
                                   r"|(?:local[ \t]+)?([\w.\[\]\"']+)[ \t]*=[ \t]*function\b)", ("--",)),
    "shell": _Language("text/x-shellscript", r"([ \t]{0,60})(?:function[ \t]+([\w:.-]+)"
                                             r"|([\w:.-]+)[ \t]*\([ \t]*\))[ \t]*(?:\{|\(|\Z)?", ("#",)),
    "perl": _Language("text/x-perl", r"([ \t]{0,60})(?:sub[ \t]+(\w+)|package[ \t]+([\w:]+))", ("#",)),
    "r": _Language("text/x-r", r"([ \t]{0,60})([\w.]+)[ \t]*(?:<-|=)[ \t]*function\b", ("#",)),
    "julia": _Language("text/x-julia", r"([ \t]{0,60})(?:@\w+[ \t]+)?(?:(?:mutable[ \t]+)?struct|function"
                                       r"|macro|module|abstract[ \t]+type)[ \t]+([\w.!]+)", ("#", "@")),
    "elixir": _Language("text/x-elixir", r"([ \t]{0,60})(?:defp?|defmacrop?|defmodule|defprotocol|defimpl"
                                         r"|test|describe)[ \t]+\"?([\w.?! ]{1,80})", ("#", "@")),
    "erlang": _Language("text/x-erlang", r"()(?!(?:if|case|begin|fun|receive|try)\b)([a-z]\w*)\([^\n]*->",
    ("%",), scoped=False),
    "haskell": _Language("text/x-haskell", r"()(?:(?:data|newtype|class|instance"
                                           r"|type)[ \t]+([^=\n]{1,80}?)[ \t]*(?:=|where\b|\Z)"
                                           r"|([a-z_][\w']*)[ \t]*::)", ("--", "{-"), scoped=False),
    "ocaml": _Language("text/x-ocaml", r"([ \t]{0,60})(?:let(?:[ \t]+rec)?|and|type|module(?:[ \t]+type)?"
                                       r"|class|exception|external)[ \t]+([\w']+)", ("(*", "@"),
                                       scoped=False),
    "clojure": _Language("text/x-clojure", r"()\((?:def\w*|ns)[ \t]+(?:\^\S+[ \t]+)?([^\s()\[\]]+)", (";",)),
    "lisp": _Language("text/x-common-lisp", r"()\((?:def\w+|cl-def\w+|define(?:-\w+)?)[ \t]+\(?([^\s()]+)",
    (";",)),
    "zig": _Language("text/x-zig", r"([ \t]{0,60})(?:pub[ \t]+)?(?:export[ \t]+|inline[ \t]+"
                                   r"|extern[ \t]+)?(?:fn[ \t]+(\w+)"
                                   r"|const[ \t]+(\w+)[ \t]*=[ \t]*(?:packed[ \t]+|extern[ \t]+)?(?:struct"
                                   r"|enum|union|opaque)\b)", ("//",)),
    "nim": _Language("text/x-nim", r"([ \t]{0,60})(?:proc|func|method|iterator|template|macro"
                                   r"|converter)[ \t]+`?(\w+)", ("#",)),
    "sql": _Language("application/sql", r"([ \t]{0,60})(?:create|alter)[ \t]+(?:or[ \t]+replace[ \t]+)"
                                        r"?(?:\w+[ \t]+){0,3}?(?:table|view|function|procedure|trigger|index"
                                        r"|type|schema|sequence)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+"
                                        r"|only[ \t]+)?([\w.\"`\[\]]+)", ("--", "/*", "*"), scoped=False),
    "powershell": _Language("text/x-powershell",
    r"([ \t]{0,60})(?:function|filter|class|enum)[ \t]+([\w:-]+)", ("#", "[")),
    "proto": _Language("text/x-protobuf", r"([ \t]{0,60})(?:message|service|enum|rpc|extend)[ \t]+([\w.]+)",
    _C_LIKE),
    "graphql": _Language("application/graphql", r"()(?:extend[ \t]+)?(?:type|interface|input|enum|union"
                                                r"|scalar|query|mutation|subscription|fragment"
                                                r"|directive)[ \t]+(@?\w+)", ("#", '"""')),
    "terraform": _Language("text/x-terraform", r"()(?:(resource|data|module|variable|output|provider|locals"
                                               r"|terraform)[ \t]*(\"[^{\n]{1,120}?)?)[ \t]*\{", ("#", "//")),
    "make": _Language("text/x-makefile", r"()(?!\.PHONY|\.SUFFIXES)([\w./%-]{1,80})[ \t]*:(?![=:])", ("#",),
    scoped=False),
    "cmake": _Language("text/x-cmake", r"([ \t]{0,60})(?:function|macro)[ \t]*\([ \t]*(\w+)", ("#",)),
    "toml": _Language("application/toml", r"()\[{1,2}[ \t]*([^\[\]\n]{1,120}?)[ \t]*\]{1,2}[ \t]*(?:#[^\n]*)"
                                          r"?\Z", ("#",), scoped=False),
    "ini": _Language("text/x-ini", r"()\[([^\[\]\n]{1,120})\][ \t]*(?:[;#][^\n]*)?\Z", ("#", ";"),
    scoped=False),
    "yaml": _Language("application/yaml", r"()([A-Za-z_\"'][^:\n#]{0,78}):[ \t]*(?:[|>&!][^\n]*|#[^\n]*)?\Z",
    ("#",), scoped=False),
}  # fmt: skip

_BY_MEDIA_TYPE = {language.media_type: language for language in _LANGUAGES.values()}
_PLAIN_TYPES = {
    "jsonc": "application/json", "json5": "application/json",
    "geojson": "application/json", "webmanifest": "application/json", "xml": "application/xml",
    "xsd": "application/xml", "xsl": "application/xml",
    "svg": "image/svg+xml", "css": "text/css", "scss": "text/css", "less": "text/css",
    "sass": "text/css", "diff": "text/x-diff", "patch": "text/x-diff", "bat": "text/x-bat",
    "cmd": "text/x-bat",
    "asm": "text/x-asm", "s": "text/x-asm", "vim": "text/x-vim", "nix": "text/x-nix",
    "properties": "text/x-properties", "env": "text/x-properties",
    "f90": "text/x-fortran", "f": "text/x-fortran", "v": "text/x-verilog", "sv": "text/x-verilog",
    "vhd": "text/x-vhdl", "glsl": "text/x-glsl",
    "d": "text/x-d", "pas": "text/x-pascal", "vb": "text/x-vb", "tcl": "text/x-tcl", "awk": "text/x-awk",
    "sol": "text/x-solidity",
    "lock": "text/x-lock", "map": "application/json",
}  # fmt: skip
_SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys(("py", "pyi", "pyx", "pxd", "pyw", "bzl", "star"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "vue", "svelte", "astro"), "javascript"),
    **dict.fromkeys(("ts", "tsx", "mts", "cts"), "typescript"),
    **dict.fromkeys(("c", "h", "m"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "ino", "cu", "cuh", "mm", "inl",
    "ipp", "tcc"), "cpp"),
    **dict.fromkeys(("sh", "bash", "zsh", "ksh", "fish", "ebuild", "bats"), "shell"),
    **dict.fromkeys(("rb", "rake", "gemspec", "podspec"), "ruby"),
    **dict.fromkeys(("kt", "kts"), "kotlin"),
    **dict.fromkeys(("scala", "sc"), "scala"),
    **dict.fromkeys(("groovy", "gradle"), "groovy"),
    **dict.fromkeys(("pl", "pm"), "perl"),
    **dict.fromkeys(("ex", "exs"), "elixir"),
    **dict.fromkeys(("erl", "hrl"), "erlang"),
    **dict.fromkeys(("hs", "lhs"), "haskell"),
    **dict.fromkeys(("ml", "mli", "fs", "fsi"), "ocaml"),
    **dict.fromkeys(("clj", "cljs", "cljc", "edn"), "clojure"),
    **dict.fromkeys(("lisp", "el", "scm", "ss", "rkt"), "lisp"),
    **dict.fromkeys(("php", "phtml"), "php"),
    **dict.fromkeys(("ps1", "psm1"), "powershell"),
    **dict.fromkeys(("tf", "hcl", "tfvars"), "terraform"),
    **dict.fromkeys(("graphql", "gql"), "graphql"),
    **dict.fromkeys(("mk", "mak"), "make"),
    **dict.fromkeys(("ini", "cfg", "conf", "service", "desktop", "editorconfig"), "ini"),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **{name: name for name in ("go", "lua", "r", "nim", "zig", "sql", "proto", "cmake", "toml", "dart",
    "swift", "java")},
    "rs": "rust", "cs": "csharp", "jl": "julia", "cr": "crystal",
}  # fmt: skip
_NAMES: Mapping[str, str] = {
    "makefile": "make", "gnumakefile": "make", "rakefile": "ruby", "gemfile": "ruby",
    ".bashrc": "shell", ".profile": "shell", ".zshrc": "shell", ".gitconfig": "ini", "build.bazel": "python",
    "sconstruct": "python", "pipfile": "toml",
    "cargo.lock": "toml", "poetry.lock": "toml", "uv.lock": "toml", "pkgbuild": "shell",
}  # fmt: skip
_PROGRAMS: Mapping[str, str] = {
    "python": "python", "node": "javascript", "nodejs": "javascript", "deno": "typescript",
    "bun": "typescript", "bash": "shell", "sh": "shell",
    "zsh": "shell", "dash": "shell", "ksh": "shell", "ruby": "ruby", "perl": "perl", "php": "php",
    "lua": "lua", "luajit": "lua", "Rscript": "r",
    "julia": "julia", "elixir": "elixir",
}  # fmt: skip


def kind_of(suffix: str, name: str, text: str) -> str | None:
    """The media type of a code or data file, from its suffix, name or first line; None if unknown."""
    language = _SUFFIXES.get(suffix) or _NAMES.get(name.lower()) or _of_program(text)
    if language is None and name.lower().startswith(("dockerfile", "containerfile")):
        return "text/x-dockerfile"
    return _LANGUAGES[language].media_type if language else _PLAIN_TYPES.get(suffix)


def has_grammar(suffix: str) -> bool:
    """Whether files with this suffix are parsed by a grammar. Grammars are native code, so these files are
    read in the separate process.
    """
    language = _LANGUAGES.get(_SUFFIXES.get(suffix, ""))
    return language is not None and language.media_type in GRAMMARS


def _of_program(text: str) -> str | None:
    """The language of a script, from the program in its `#!` line; None if there is none."""
    if text[:2] != "#!":
        return None
    words = [word for word in text[2:300].split("\n")[0].split() if word[0] != "-" and "=" not in word]
    programs = [word.rsplit("/")[-1].rstrip("0123456789.") for word in words]
    if programs[:1] == ["env"]:
        del programs[0]
    return _PROGRAMS.get(programs[0]) if programs else None


def reader(media_type: str, grammar: bool = True) -> Callable[[str], Parsed]:
    """The reader for a media type: with its grammar, else with the patterns for its language, else one that
    returns plain lines.

    Grammars are native code, so files of unknown origin must be parsed in the reading process.
    """

    def parse(text: str) -> Parsed:
        parsed = definitions(text, media_type) if grammar and media_type in GRAMMARS else None
        if parsed is not None:
            return Parsed(text, tuple(_headings(text, parsed)), definitions=tuple(parsed))
        language = _BY_MEDIA_TYPE.get(media_type)
        headings = _headings_by_patterns(text, language) if language else ()
        names = definitions_by_patterns(text, media_type) if is_code(media_type) else ()
        return Parsed(text, tuple(headings), definitions=names)

    return parse


_CLOSING = re.compile(r"(?:[\s})\];,]|\bend\b)*")  # text after a definition that belongs to the enclosing one


def _headings(text: str, found: Sequence[Definition]) -> Iterator[Heading]:
    """A heading for each definition that starts a chunk, and an empty heading where other code follows a
    definition.
    """
    starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    open_: list[tuple[int, str]] = []  # (last line, qualified name) of the enclosing definitions

    def close(line: int) -> Iterator[Heading]:
        """End the definitions before a line."""
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


# Further lines that define a name but do not start a chunk: top-level constants and variables, JavaScript's
# `exports.find = function`, and any top-level assignment in Python.
_ALSO: Mapping[str, str] = {
    **dict.fromkeys(
        ("text/javascript", "text/x-typescript"),
        r"(?:export[ \t]+)?(?:declare[ \t]+)?(?:const|let|var)[ \t]+([A-Za-z_$][\w$]*)"
        r"|[ \t]{0,60}(?:[\w$]+\.)+([\w$]+)[ \t]*=[ \t]*(?:async[ \t]*)?"
        r"(?:function\b|\([^()\n]{0,200}\)[ \t]*=>)",
    ),
    "text/x-python": r"([A-Za-z_]\w*)(?::[^=\n]{1,80})?[ \t]*=(?!=)",
    "text/x-go": r"(?:const|var)[ \t]+(\w+)",
    "text/x-rust": r"[ \t]{0,60}(?:pub(?:[ \t]*\([^()\n]{0,40}\))?[ \t]+)?(?:const|static)[ \t]+"
    r"(?:mut[ \t]+)?(\w+)[ \t]*:",
    **dict.fromkeys(("text/x-c", "text/x-c++"), r"#[ \t]*define[ \t]+(\w+)"),
}
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
            if name and not match[0].lstrip().startswith("impl"):  # `impl` does not define its type
                yield match.start(group) - 1, name, block


@cache
def _name_patterns(media_type: str) -> list[tuple[re.Pattern[str], bool]]:
    language = _BY_MEDIA_TYPE.get(media_type)
    if language is None:
        return [(re.compile(rf"\n(?:{_ANY})"), True)]
    also = _ALSO.get(media_type)
    return [
        (_definition_pattern(language), True),
        *([(re.compile(rf"\n(?:{also})"), False)] if also else ()),
    ]


def _last_part(name: str) -> str:
    """The last part of a name: `find` for `self.find` and `Store::find`; "" if it is not an identifier
    (`Display for Store`).
    """
    last = re.split(r"::|[.:]", name.strip("`\"'?!= "))[-1]
    return last if last.isidentifier() else ""


@cache
def _definition_pattern(language: _Language) -> re.Pattern[str]:
    flags = re.IGNORECASE if language.media_type == "application/sql" else 0
    return re.compile(r"\n(?:" + language.definition.replace(r"\Z", r"(?=\n|\Z)") + ")", flags)


def _headings_by_patterns(text: str, language: _Language) -> list[Heading]:
    joint = "." if language.media_type == "text/x-go" else " "
    split_return = language.definition is _C
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    open_: list[int] = []  # the indentation of the enclosing definitions, by level
    floor = 0  # text before this offset already belongs to a heading
    for match in _definition_pattern(language).finditer(lines):
        indent = len(match[1])
        parts = [part.strip("\"'` ") for part in match.groups()[1:] if part]
        name = clipped(joint.join(parts).replace('" "', "."))
        if not name:
            continue
        start = _with_comments(lines, match.start(), floor, language.comment, split_return)
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


def _with_comments(lines: str, at: int, floor: int, comment: tuple[str, ...], split_return: bool) -> int:
    """The start of the definition at offset `at`, including the comments and decorators right above it."""
    start = at
    while start > floor:
        above = lines.rfind("\n", floor, start)
        if above < 0:
            break
        line = lines[above + 1 : start].strip() if start - above < 1000 else ""
        if not line or not (
            line.startswith(comment)
            or (split_return and start == at and line[0].isalpha() and line[-1] not in ";}:,)>\\")
        ):
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
        position = _with_comments(lines, match.start(), floor, language.comment, False)
        headings.append(Heading(position, len(open_) + 1, ""))
        floor = match.end()
    return floor
