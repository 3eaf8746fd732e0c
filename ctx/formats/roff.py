"""Manual pages in roff: the man and mdoc macros as Markdown-like text.

Not a typesetter: the macros that manual pages use become headings, paragraphs, lists and blocks; requests about fonts, spacing and
conditions go; a macro that is not known leaves its words.
"""

import re

from ctx.formats.base import Parsed, clipped
from ctx.types import Heading

_SPECIAL = {
    "bu": "•", "em": "—", "en": "–", "hy": "-", "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "aq": "'", "dq": '"', "ga": "`", "ha": "^", "ti": "~",
    "rs": "\\", "co": "©", "rg": "®", "tm": "™", "->": "→", "<-": "←", "<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "mu": "×", "de": "°", "ss": "ß",
    "ba": "|", "sl": "/", "at": "@", "sh": "#", "Do": "$", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "la": "⟨", "ra": "⟩", "fm": "′", "sc": "§",
    "u0": "", "ae": "æ", "AE": "Æ", "o/": "ø", "'e": "é", "`e": "è", ":u": "ü", ":o": "ö", ":a": "ä", "'a": "á", "'o": "ó", "'i": "í", ",c": "ç",
    "~n": "ñ", "R": "®", "Tm": "™", "lq]": "“", "ru": "_", "mi": "−", "pl": "+", "eq": "=", "**": "*", "ul": "_", "bv": "|", "br": "|", "tf": "∴",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:f(?:\((..)|\[([^\]\n]{0,20})\]|(.))"  # fonts
    r"|\((..)|\[([^\]\n]{1,40})\]"  # characters
    r"|\*(?:\((..)|\[([^\]\n]{1,40})\]|(.))"  # strings
    r"|s[-+]?(?:\(?\d\d?|\[[^\]\n]{0,10}\]|'[^'\n]{0,10}')|[hvwDlLbNoXYZAHSRBx]'[^'\n]{0,200}'|[nkgmMFV](?:\([^\n]{2}|\[[^\]\n]{0,40}\]|[^\[(\n])"
    r"|z|u|d|r|p|&|%|:|/|,|\||\^|\)|\"[^\n]*|\#[^\n]*"
    r"|([-e'`. \\0~t_c]))"
)
_SINGLE = {
    "-": "-",
    "e": "\\",
    "'": "´",
    "`": "`",
    ".": ".",
    " ": " ",
    "\\": "\\",
    "0": " ",
    "~": " ",
    "t": "\t",
    "_": "_",
    "c": "",
}
_STRINGS = {
    "lq": "“",
    "rq": "”",
    "R": "®",
    "Tm": "™",
    'L"': "“",
    'R"': "”",
    'C"': "“",
    "S": "",
    "PS": "PostScript",
    "(C": "©",
    "-": "--",
}
_REQUEST = re.compile(r".[ \t]*([^\s\\]+)[ \t]*([^\n]*)")
_ARGUMENT = re.compile(r'"((?:[^"\n]|"")*)"?|(\S+)')
_FONT_MACROS = frozenset("B I R SM SB BR RB BI IB RI IR".split())  # noqa: SIM905
_MDOC_PLAIN = frozenset(
    "Ar Cm Dv Em Er Ev Fa Fn Ic Li Pa Sy Va Vt Tn Ad An Cd Fr Ft Fd In Lb Ms Mt No Nm Ns Sx Xo Xc Ux Bx At Nx Fx Ox Dx Bsx Pf Lk Ap St Rv Ex Rs Re "  # noqa: SIM905
    "%A %B %C %D %I %J %N %O %P %Q %R %T %U %V Fl Op Oo Oc Xr Dq Do Dc Sq So Sc Ql Qq Qo Qc Pq Po Pc Bq Bo Bc Brq Bro Brc Aq Ao Ac Eo Ec Fo Fc D1 Dl "
    "It Nd Eq Dx Bt Ud".split()
)  # fmt: skip
_MDOC_ENCLOSE = {
    "Op": "[]", "Oo": "[", "Oc": "]", "Dq": "“”", "Do": "“", "Dc": "”", "Sq": "‘’", "So": "‘", "Sc": "’", "Ql": "‘’", "Qq": '""', "Qo": '"', "Qc": '"',
    "Pq": "()", "Po": "(", "Pc": ")", "Bq": "[]", "Bo": "[", "Bc": "]", "Brq": "{}", "Bro": "{", "Brc": "}", "Aq": "<>", "Ao": "<", "Ac": ">",
}  # fmt: skip
_MDOC_NAMES = {
    "Ux": "UNIX",
    "Bx": "BSD",
    "At": "AT&T UNIX",
    "Nx": "NetBSD",
    "Fx": "FreeBSD",
    "Ox": "OpenBSD",
    "Dx": "DragonFly",
    "Bsx": "BSD/OS",
    "Ap": "'",
}
_SKIPPED_BLOCKS = {"de": "..", "de1": "..", "am": "..", "ig": "..", "EQ": ".EN", "PS": ".PE"}
_MDOC_CALLABLE = _MDOC_PLAIN - {"It", "Nd", "D1", "Dl", "%T"}
_OPENING, _CLOSING = frozenset("(["), frozenset(".,:;)]?!")
_NO_WORDS = frozenset(
    "ad af as bp br brp c2 cc ce cf ch cs cu da di do dt ec em eo ev ex fam fc fi fl fp ft hc hcode hlm hpf hw hy ie if in it kern lc lf lg ll ls lt mc "  # noqa: SIM905
    "mk na ne nf nh nm nn nr ns nx os pc pi pl pm pn po ps rd rm rn rr rs rt so sp ss sv ta tc ti tl tm tr uf ul vs warn IX UC AT PD DT HP Os Dd TH Dt "
    "ME MT UE UR SY YS OP TE TS RS RE LP PP P IP TP TQ SH SS EX EE Bl El Bd Ed Pp Lp Sh Ss Bk Ek Sm Hf Db".split()
)  # fmt: skip


def parse(text: str) -> Parsed:
    """A manual page. Its title is `name(section) - what it does`, as `man -k` shows it."""
    page = _Page()
    lines = text.split("\n")
    skip_until = ""
    depth = 0  # of braces in a branch not taken
    taken = True  # was the last `.ie` taken?
    joined = ""
    for line in lines:
        if joined:
            line, joined = joined + line, ""
        if line.endswith("\\") and not line.endswith("\\\\"):
            joined = line[:-1]
            if len(joined) < 10_000:
                continue
            line, joined = joined, ""
        if skip_until:
            skip_until = "" if line.rstrip() == skip_until else skip_until
            continue
        if depth:
            depth += line.count("\\{") - line.count("\\}")
            continue
        if line[:1] in (".", "'"):
            request, rest = _request(line)
            if request in ("if", "ie", "el"):
                if request == "el":
                    taken, rest = not taken, "n " + rest if not taken else "t " + rest
                condition, _, rest = rest.strip().partition(" ")
                met = condition in ("n", "!t") or (request == "el" and condition == "n")
                taken = met if request == "ie" else taken
                if not met:
                    depth = max(0, rest.count("\\{") + condition.count("\\{") - rest.count("\\}"))
                    continue
                line = rest.replace("\\{", "").replace("\\}", "").strip()
                if line[:1] not in (".", "'"):
                    page.words(line)
                    continue
                request, rest = _request(line)
            if request in _SKIPPED_BLOCKS:
                end = rest.split()[1] if request in ("de", "de1", "am") and len(rest.split()) > 1 else ""
                skip_until = f".{end}" if end else _SKIPPED_BLOCKS[request]
            elif request:
                page.macro(request, rest)
        else:
            page.words(line)
    return page.parsed()


class _Page:
    """The text of a page as it grows. Lines of a paragraph are joined; those of a block stand as they are."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.headings: list[Heading] = []
        self.atoms: list[tuple[int, int]] = []
        self.paragraph: list[str] = []
        self.tag: str | None = None
        self.tag_next = False  # `.TP`: the next line is the tag
        self.block: list[str] | None = None  # the lines of a block without filling
        self.table: str | None = None  # "format" | "rows"
        self.strings = dict(_STRINGS)
        self.name = ""
        self.section = ""
        self.mdoc_name = ""
        self.link = ""

    # -- output --------------------------------------------------------------------------------------------------
    def _put(self, text: str) -> None:
        if self.parts:
            self.parts.append("\n\n")
            self.size += 2
        self.parts.append(text)
        self.size += len(text)

    def flush(self) -> None:
        """Ends the paragraph."""
        if self.block is not None:
            return
        text = "\n".join(
            line for line in (" ".join(run.split()) for run in " ".join(self.paragraph).split("\n")) if line
        )
        tag, self.tag = self.tag, None
        self.paragraph = []
        self.tag_next = False
        if tag is not None:
            tag = " ".join(tag.split())
            if not text:
                text = tag
            elif len(tag) <= 2:
                text = f"{tag} {text}"
            else:
                text = f"{tag}\n    " + text.replace("\n", "\n    ")
        if text:
            self._put(text)

    def _heading(self, level: int, words: str) -> None:
        self._end_block()
        self.flush()
        words = clipped(words)
        if words:
            self._put("#" * level + " " + words)
            self.headings.append(Heading(self.size - len(words) - level - 1, level, words))

    def _end_block(self) -> None:
        if self.block is not None:
            lines, self.block = self.block, None
            while lines and not lines[-1].strip():
                lines.pop()
            if lines:
                self._put("```\n" + "\n".join(lines) + "\n```")
                self.atoms.append((self.size - sum(map(len, lines)) - len(lines) - 7, self.size))

    def _begin_block(self) -> None:
        if self.block is None:
            self.flush()
            self.block = []

    # -- input ---------------------------------------------------------------------------------------------------
    def words(self, line: str) -> None:
        """A line of text."""
        if self.table == "format":
            if line.rstrip().endswith("."):
                self.table = "rows"
            return
        text = self._plain(line)
        if self.table == "rows":
            cells = [cell.strip() for cell in text.replace("T{", "").replace("T}", "").split("\t")]
            row = " | ".join(cell for cell in cells if cell)
            if row and row not in ("_", "="):
                self.paragraph.append(row + "\n")
        elif self.block is not None:
            self.block.append(text.rstrip())
        elif self.tag_next:
            if text.strip():
                self.tag, self.tag_next = text, False
        elif not text.strip():
            self.flush()
        else:
            self.paragraph.append(("\n" if line[:1] in " \t" else "") + text)

    def macro(self, name: str, rest: str) -> None:
        """A request or macro with its arguments."""
        if name in ("SH", "Sh"):
            self._heading(1, self._plain(" ".join(_arguments(rest))))
        elif name in ("SS", "Ss"):
            self._heading(2, self._plain(" ".join(_arguments(rest))))
        elif name in ("TH", "Dt"):
            arguments = [self._plain(argument) for argument in _arguments(rest)]
            self.name = arguments[0] if arguments else ""
            self.section = arguments[1] if len(arguments) > 1 else ""
        elif name in ("PP", "LP", "P", "Pp", "Lp", "HP", "sp", "Sp", "RS", "RE", "YS", "El"):
            self._break()
        elif name in ("TP", "TQ"):
            self._break()
            self.tag_next = True
        elif name == "IP":
            self._break()
            arguments = _arguments(rest)
            self.tag = self._plain(arguments[0]) if arguments and arguments[0] else None
        elif name == "br":
            self._add("\n")
        elif name in ("nf", "EX", "Vb"):  # Vb, Ve, Sp: what pod2man defines
            self._begin_block()
        elif name in ("fi", "EE", "Ve", "Ed"):
            self._end_block()
        elif name == "TS":
            self._end_block()
            self.flush()
            self.table = "format"
        elif name == "TE":
            self.table = None
            self.flush()
        elif name == "ds":
            key, _, value = rest.strip().partition(" ")
            self.strings[key[:40]] = self._plain(value.lstrip().removeprefix('"'))[:200]
        elif name in _FONT_MACROS:
            arguments = [self._plain(argument) for argument in _arguments(rest)]
            self._add((" " if name in ("B", "I", "R", "SM", "SB") else "").join(arguments))
        elif name in ("UR", "MT"):
            self.link = self._plain(rest).strip()
        elif name in ("UE", "ME"):
            self._add(f"<{self.link}>{self._plain(rest).strip()}")
        elif name == "SY":
            self._break()
            self._add(self._plain(rest))
        elif name == "OP":
            self._add("[" + " ".join(self._plain(argument) for argument in _arguments(rest)) + "]")
        else:
            self._mdoc(name, rest)

    def _break(self) -> None:
        if self.block is not None:
            self.block.append("")
        else:
            self.flush()

    def _add(self, text: str) -> None:
        if self.block is not None:
            self.block.append(text.rstrip())
        elif self.tag_next and text.strip():
            self.tag, self.tag_next = text, False
        elif text:
            self.paragraph.append(text)

    def _mdoc(self, name: str, rest: str) -> None:
        if name == "Nd":
            self._add("- " + self._plain(rest))
        elif name == "It":
            self._break()
            self.tag = self._mdoc_line(_arguments(rest)) if rest.strip() else "•"
        elif name == "Bl":
            self._break()
        elif name == "Bd":
            if "-literal" in rest or "-unfilled" in rest:
                self._begin_block()
            else:
                self._break()
        elif name in ("Dl", "D1"):
            self._break()
            self._add(self._mdoc_line(_arguments(rest)))
            self._break()
        elif name in _MDOC_PLAIN:
            self._add(self._mdoc_line([name, *_arguments(rest)]))
        elif name not in _NO_WORDS and not (len(name) == 2 and name.islower()):
            self._add(self._plain(" ".join(_arguments(rest))))  # a page's own macro

    def _mdoc_line(self, parts: list[str]) -> str:
        """The words of a line of mdoc, whose arguments may be macros in turn."""
        out: list[str] = []
        closers: list[str] = []
        macro, said, glue = "", True, False

        def say(word: str) -> None:
            nonlocal glue
            if out and (glue or word in _CLOSING or out[-1] in _OPENING):
                out[-1] += word
            else:
                out.append(word)
            glue = False

        def end_macro() -> None:
            if said:
                return
            if macro == "Ar":
                say("file ...")
            elif macro == "Nm" and self.mdoc_name:
                say(self.mdoc_name)
            elif macro == "Fl":
                say("-")

        for part in parts:
            if part in _MDOC_CALLABLE:
                end_macro()
                glue = glue or (macro == "Fl" and part == "Fl" and not said)  # two of them are a long option
                macro, said = part, False
                if part in ("Ns", "Pf"):
                    glue = part == "Ns" or glue
                    said = True
                elif part in _MDOC_ENCLOSE:
                    marks = _MDOC_ENCLOSE[part]
                    if (part[-1] == "c" and len(part) == 2) or part == "Brc":
                        glue = True
                        say(marks)
                    else:
                        say(marks[0])
                        glue = True
                        if len(marks) > 1:
                            closers.append(marks[1])
                    said = True
                elif part in _MDOC_NAMES:
                    say(_MDOC_NAMES[part])
                    said = True
                continue
            word = self._plain(part)
            if part in _CLOSING:
                end_macro()
                said = True
                if part not in ")]":
                    while closers:
                        glue = True
                        say(closers.pop())
                say(part)
            elif macro == "Fl":
                say("-" + word)
                said = True
            elif macro == "Xr" and not said:
                say(word)
                said = True
            elif macro == "Xr" and word[:1].isdigit():
                glue = True
                say(f"({word})")
                macro = ""
            else:
                say(word)
                if macro == "Nm" and not said and not self.mdoc_name:
                    self.mdoc_name = word
                if macro == "Pf":
                    glue = True
                    macro = ""
                said = True
        end_macro()
        while closers:
            glue = True
            say(closers.pop())
        return " ".join(out)

    def _plain(self, text: str) -> str:
        """A line without escapes."""
        if "\\" not in text:
            return text
        return _ESCAPE.sub(self._escape, text)

    def _escape(self, found: re.Match[str]) -> str:
        if found[4] or found[5]:
            name = found[4] or found[5]
            if name[:1] == "u" and len(name) > 4:
                try:
                    return "".join(chr(int(code, 16)) for code in name[1:].split("_"))
                except (ValueError, OverflowError):
                    return ""
            return _SPECIAL.get(name, name[:1] if name[:1].isalpha() and len(name) == 2 else "")
        if found[6] or found[7] or found[8]:
            return self.strings.get(found[6] or found[7] or found[8], "")
        return _SINGLE.get(found[9], "") if found[9] else ""

    def parsed(self) -> Parsed:
        self._end_block()
        self.flush()
        body = "".join(self.parts)
        title = None
        if self.name:
            name = self.name.lower() if self.name.isupper() else self.name
            title = f"{name}({self.section})" if self.section else name
            purpose = self._purpose(body)
            title = clipped(f"{title} - {purpose}" if purpose else title)
        return Parsed(body, tuple(self.headings), tuple(self.atoms), title if body else None)

    def _purpose(self, body: str) -> str:
        """What the NAME section says after the dash."""
        for i, heading in enumerate(self.headings[:3]):
            if heading.title.upper() == "NAME":
                end = self.headings[i + 1].start if i + 1 < len(self.headings) else len(body)
                text = " ".join(body[heading.start : min(end, heading.start + 2000)].split())
                for dash in (" - ", " — ", " – ", " -- "):
                    if dash in text:
                        purpose = text.split(dash, 1)[1].strip()
                        return purpose if len(purpose) <= 90 else ""
        return ""


def _request(line: str) -> tuple[str, str]:
    """The name and the arguments of a control line; no name for a comment."""
    found = _REQUEST.match(line)
    return (found[1], found[2]) if found else ("", "")


def _arguments(rest: str) -> list[str]:
    """The arguments of a macro; quotes hold one together."""
    comment = rest.find('\\"')
    if comment >= 0:
        rest = rest[:comment]
    return [
        quoted.replace('""', '"') if quoted or not bare else bare
        for quoted, bare in _ARGUMENT.findall(rest[:5000])
    ]
