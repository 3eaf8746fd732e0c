"""The definitions in a source file: kind, name, signature and line range, from its syntax tree."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ctx.code.grammars import load

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEFINITIONS = 20_000  # of one file; the rest is left out
MAX_SIGNATURE_CHARS = 200
MAX_NAME_CHARS = 160
_COMMENT_MARK = re.compile(rb"#|//|/\*|--|\(\*")  # in the languages of the grammars


class Definition(NamedTuple):
    """One definition. Lines count from 1; `start_line` includes decorators and the comment right above.

    `name_line` is the line of the name. `qualified` is the path of names, as in `Store.find`.
    """

    name: str
    qualified: str
    kind: str
    signature: str
    start_line: int
    name_line: int
    end_line: int


# Nodes around a definition that belong to it.
_WRAPPERS = frozenset(
    (
        "decorated_definition", "template_declaration", "export_statement", "ambient_declaration",
        "type_declaration", "lexical_declaration", "variable_declaration", "const_declaration",
        "var_declaration", "expression_statement", "field_declaration", "local_declaration",
    )
)  # fmt: skip
_ABOVE = frozenset(("attribute_item", "inner_attribute_item", "decorator", "attribute_list"))
_ANNOTATIONS = frozenset(("annotation", "marker_annotation", "attribute_list", "decorator", "attribute"))
_NAMES = frozenset(("variable", "constant", "field"))  # what has no members, and no method is in it
_TYPES = frozenset(
    (
        "class",
        "interface",
        "struct",
        "trait",
        "impl",
        "enum",
        "record",
        "object",
        "protocol",
        "union",
        "type",
        "extension",
        "actor",
    )
)
_SWIFT_KINDS = frozenset(("struct", "enum", "extension", "actor"))


def definitions(text: str, media_type: str) -> list[Definition] | None:
    """The definitions of a file in the order of their start; None if the language has no grammar here."""
    loaded = load(dialect(text, media_type))
    if loaded is None:
        return None
    from tree_sitter import QueryCursor

    parser, query = loaded
    tree = parser.parse(text.encode("utf-8", "replace"))
    captures = QueryCursor(query).captures(tree.root_node)
    found = [(node, kind) for kind, nodes in captures.items() for node in nodes]
    found.sort(key=lambda each: (each[0].start_byte, -each[0].end_byte, each[1] == "variable"))
    return list(_described(found[:MAX_DEFINITIONS]))


_CPP = re.compile(r"^[ \t]*(?:class|namespace|template|using)\b|^(?:public|private|protected):", re.MULTILINE)


def dialect(text: str, media_type: str) -> str:
    """The media type of the grammar to use: a C header may be C++, and JSX needs a grammar of its own."""
    if media_type == "text/x-c" and _CPP.search(text):
        return "text/x-c++"
    if media_type == "text/x-typescript" and ("</" in text or "/>" in text):
        return "text/x-tsx"
    if media_type == "text/javascript" and text.lstrip().startswith("<"):
        return ""  # Vue, Svelte and Astro: a page with a script in it
    return media_type


def _described(found: "list[tuple[Node, str]]") -> Iterator[Definition]:
    around: list[tuple[int, str, str]] = []  # (end byte, qualified name, kind) of the definitions around
    namespace = ""  # of C#'s `namespace A;`, whose members follow it
    last = -1
    for node, kind in found:
        if node.start_byte == last and kind == "variable":
            continue  # a variable that holds a function was captured as that
        name, named = _name(node)
        name = name[:MAX_NAME_CHARS]
        if not name:
            continue
        last = node.start_byte
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        outer, outer_kind = around[-1][1:] if around else (namespace, "namespace")
        kind = _kind(node, kind, outer_kind)
        if kind in _NAMES and outer_kind in ("function", "method"):
            continue
        prefix = _receiver(node) or outer
        qualified = f"{prefix}.{name}" if prefix else name
        if node.type == "file_scoped_namespace_declaration":
            namespace = qualified
        elif kind not in _NAMES:
            around.append((node.end_byte, qualified, kind))
        whole = _whole(node)
        yield Definition(
            name if name.isidentifier() else re.split(r"[.:]+", name)[-1] or name,
            qualified,
            kind,
            _signature(whole if kind in _NAMES else node, kind),
            _first_row(whole) + 1,
            named.start_point.row + 1,
            whole.end_point.row + (whole.end_point.column > 0),
        )


def _kind(node: "Node", kind: str, outer_kind: str) -> str:
    if kind == "function" and outer_kind in _TYPES:
        return "method"
    if kind == "class" and node.type == "class_declaration" and node.children:
        word = _text(node.child_by_field_name("declaration_kind"))  # of Swift
        if word in _SWIFT_KINDS:
            return word
        if any(_text(child) == "interface" for child in node.children[:3]):  # of Kotlin
            return "interface"
    if node.type == "type_spec":  # of Go
        inner = node.child_by_field_name("type")
        return {"struct_type": "struct", "interface_type": "interface"}.get(inner.type if inner else "", kind)
    return kind


def _text(node: "Node | None") -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def _name(node: "Node") -> tuple[str, "Node"]:
    """A definition's name and the node of the name; "" if it has none, such as a class expression."""
    if node.type == "impl_item":
        typed = node.child_by_field_name("type") or node
        return re.sub(r"<.*", "", _text(typed), flags=re.DOTALL).strip(), typed
    for field in ("name", "property", "left", "key"):
        named = node.child_by_field_name(field)
        if named is not None and named.type.endswith("_pattern"):
            return "", node  # `const {a, b} = ...` takes names from elsewhere
        if named is not None:
            text = _text(named.child_by_field_name("name") if named.type == "template_type" else named)
            if text.isidentifier():
                return text, named
            if text[:1] in ("`", "'", '"'):  # a name of several words, as tests in Kotlin have
                return " ".join(text.strip("`'\"").split()), named
            return re.sub(r"^r#|\s+", "", text).replace("::", ".").replace(":", "."), named
    declarator = node.child_by_field_name("declarator")
    if declarator is not None and declarator.type == "operator_cast":
        return _declared(declarator), declarator
    while declarator is not None:  # of C: `*name(arguments)` inside out
        inner = declarator.child_by_field_name("declarator") or next(
            (child for child in declarator.named_children if child.type.endswith("declarator")), None
        )
        if inner is None:
            return re.sub(r"\s+", "", _declared(declarator)).replace("::", "."), declarator
        declarator = inner
    return _unnamed(node)


def _declared(declarator: "Node") -> str:
    """The name in the innermost declarator."""
    if declarator.type == "operator_cast":
        return re.sub(r"\(.*", "", _text(declarator), flags=re.DOTALL).strip()
    if declarator.type in ("qualified_identifier", "destructor_name", "operator_name"):
        return _text(declarator)
    named = next((child for child in declarator.named_children if "identifier" in child.type), None)
    return _text(named if named is not None and declarator.type.endswith("declarator") else declarator)


_NAMED_BY_PATTERN = frozenset(
    (
        "operator_declaration", "conversion_operator_declaration", "property_declaration", "val_definition",
        "const_element", "const_spec", "assignment_statement", "field",
    )
)  # fmt: skip
_FIXED = {
    "init_declaration": "init",
    "deinit_declaration": "deinit",
    "secondary_constructor": "constructor",
    "companion_object": "Companion",
    "indexer_declaration": "this[]",
}


def _unnamed(node: "Node") -> tuple[str, "Node"]:
    """A name for what the grammar gives none: constructors, operators, indexers, Kotlin's and Lua's forms."""
    if node.type in _FIXED:
        return _FIXED[node.type], node
    if node.type not in _NAMED_BY_PATTERN:
        return "", node
    if node.type in ("operator_declaration", "conversion_operator_declaration"):
        operator = node.child_by_field_name("operator") or node.child_by_field_name("type")
        return f"operator{_text(operator)}", operator or node
    named: Node | None = node
    while named is not None and named.named_children and "identifier" not in named.type:
        if named.type.endswith("index_expression"):  # of Lua
            break
        children = [child for child in named.named_children if child.type != "modifiers"]
        named = node.child_by_field_name("pattern") if named is node else None
        named = named or next((child for child in children if not child.type.endswith("annotation")), None)
    return (
        (re.sub(r"\s+", "", _text(named)), named) if named is not None and named is not node else ("", node)
    )


def _receiver(node: "Node") -> str:
    """The type that a method of Go belongs to."""
    receiver = node.child_by_field_name("receiver") if node.type == "method_declaration" else None
    if receiver is None:
        return ""
    words = re.findall(r"\w+", re.sub(r"\[.*?\]", "", _text(receiver)))
    return words[-1] if words else ""


def _whole(node: "Node") -> "Node":
    """The node with what is written around it: decorators, `export`, `template <...>`."""
    whole = node
    while whole.parent is not None and whole.parent.type in _WRAPPERS:
        parent = whole.parent
        siblings = [child for child in parent.named_children if child.type == whole.type]
        if len(siblings) > 1:
            break  # one of several in a group
        whole = parent
    return whole


def _first_row(node: "Node") -> int:
    """The row where a definition begins, with the attributes and comments right above it."""
    row = node.start_point.row
    above = node.prev_sibling
    while above is not None and (above.type in _ABOVE or "comment" in above.type):
        end = above.end_point.row - (
            above.end_point.column == 0 and above.end_point.row > above.start_point.row
        )
        if end < row - 1 or (end == row and above.type not in _ABOVE):
            break
        before = above.prev_sibling
        if before is not None and before.end_point.row == above.start_point.row and "comment" in above.type:
            break  # a comment at the end of a line of code
        row = min(row, above.start_point.row)
        above = before
    return row


def _signature(node: "Node", kind: str) -> str:
    """A definition up to its body, without annotations, on one line."""
    start, end = node.start_byte, node.end_byte
    first = node.child(0)
    for child in () if first is None else (first, *first.children):
        if child.type in _ANNOTATIONS and child.start_byte == start:
            start = child.end_byte
            while (
                node.text is not None
                and node.text[start - node.start_byte : start - node.start_byte + 1].isspace()
            ):
                start += 1
    body = node.child_by_field_name("body") or next(
        (
            child
            for child in node.named_children
            if child.type.endswith(("body", "block", "_list"))
            and child.text is not None
            and child.text.startswith(b"{")
        ),
        None,
    )
    text = (node.text or b"")[
        start - node.start_byte : (body.start_byte if body is not None else end) - node.start_byte
    ]
    if body is None and (kind in _NAMES or b"\n" in text):
        text = text.split(b"{", 1)[0] if kind not in _NAMES else text.split(b"\n", 1)[0]
    if _COMMENT_MARK.search(text):
        for first, last in reversed([*_comments(node, start, start + len(text))]):
            text = text[: first - start] + b" " + text[last - start :]
    several = b"\n" in text
    line = " ".join(text.decode("utf-8", "replace").split()).rstrip(" {:=")
    if several:
        line = re.sub(r"([(\[]) |,? (?=[)\]])| (?=,)", r"\1", line)  # of parameters on lines of their own
    return line if len(line) <= MAX_SIGNATURE_CHARS else line[:MAX_SIGNATURE_CHARS].rsplit(" ", 1)[0] + " …"


def _comments(node: "Node", start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the comments within a range of bytes begin and end."""
    for child in node.children:
        if child.start_byte >= end:
            break
        if child.end_byte > start:
            if "comment" in child.type:
                yield child.start_byte, child.end_byte
            else:
                yield from _comments(child, start, end)
