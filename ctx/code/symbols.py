"""The definitions in a source file: kind, name, signature and line range, from its syntax tree."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ctx.code.grammars import load

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEFINITIONS = 20_000  # maximum per file; further definitions are left out
MAX_DEPTH = 500  # maximum nodes of the syntax tree around a definition; deeper ones are left out
MAX_SIGNATURE_CHARS = 200
MAX_NAME_CHARS = 160
# Beginnings of comments in all languages that have a grammar.
_COMMENT_MARK = re.compile(rb"#|//|/\*|--|\(\*")


class Definition(NamedTuple):
    """One definition. Lines count from 1; `start_line` includes decorators and the comment right above it.

    `name_line` is the line of the name. `qualified` is the name with the names around it, as in `Store.find`.
    `kind` is `function`, `class` and so on; `signature` is the definition up to its body, on one line.
    """

    name: str
    qualified: str
    kind: str
    signature: str
    start_line: int
    name_line: int
    end_line: int


# Types of parent nodes that belong to the definition inside them.
_WRAPPERS = frozenset(
    (
        "decorated_definition", "template_declaration", "export_statement", "ambient_declaration",
        "type_declaration", "lexical_declaration", "variable_declaration", "const_declaration",
        "var_declaration", "expression_statement", "field_declaration", "local_declaration", "declaration",
        "property_declaration",
    )
)  # fmt: skip
# Nodes whose signature is that of the whole statement.
_BY_WHOLE = frozenset(("variable_declarator", "simple_symbol", "property_element"))
_ABOVE = frozenset(("attribute_item", "inner_attribute_item", "decorator", "attribute_list"))
_ANNOTATIONS = frozenset(("annotation", "marker_annotation", "attribute_list", "decorator", "attribute"))
# Kinds of definitions that are neither functions nor have members.
_NAMES = frozenset(("variable", "constant", "field"))
_TYPE_KINDS = "class interface struct trait impl enum record object protocol union type extension actor"
_TYPES = frozenset(_TYPE_KINDS.split())
_SWIFT_KINDS = frozenset(("struct", "enum", "extension", "actor"))


def definitions(text: str, media_type: str) -> list[Definition] | None:
    """The definitions in a file, in the order of their start; None if no grammar for the language is
    installed.
    """
    loaded = load(dialect(text, media_type))
    if loaded is None:
        return None
    from tree_sitter import QueryCursor

    parser, query = loaded
    tree = parser.parse(text.encode("utf-8", "replace"))
    cursor = QueryCursor(query)
    # The time for a query grows with the square of the depth: a minute for 300 KB of nested Ruby calls.
    cursor.set_max_start_depth(MAX_DEPTH)
    captures = cursor.captures(tree.root_node)
    found = [(node, kind) for kind, nodes in captures.items() if kind[0] != "_" for node in nodes]
    found.sort(key=lambda each: (each[0].start_byte, -each[0].end_byte, each[1] == "variable"))
    return list(_described(found[:MAX_DEFINITIONS]))


_CPP = re.compile(r"^[ \t]*(?:class|namespace|template|using)\b|^(?:public|private|protected):", re.MULTILINE)


def dialect(text: str, media_type: str) -> str:
    """The media type of the grammar to use, which may differ from the file's own media type: a C header may
    be C++, and JSX in TypeScript needs its own grammar. "" if no grammar fits.
    """
    if media_type == "text/x-c" and _CPP.search(text):
        return "text/x-c++"
    if media_type == "text/x-typescript" and ("</" in text or "/>" in text):
        return "text/x-tsx"
    if media_type == "text/javascript" and text.lstrip().startswith("<"):
        return ""  # Vue, Svelte or Astro: a page that contains a script
    return media_type


def _described(found: "list[tuple[Node, str]]") -> Iterator[Definition]:
    around: list[tuple[int, str, str]] = []  # (end byte, qualified name, kind) of the enclosing definitions
    namespace = ""  # the namespace from C#'s `namespace A;`, whose members follow it
    last = -1
    for node, kind in found:
        if kind == "variable" and (node.start_byte == last or _is_import(node)):
            continue  # a variable that holds a function is already captured as a function
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
        elif kind not in _NAMES or _holds_members(node):
            around.append((node.end_byte, qualified, kind))
        whole = _whole(node)
        yield Definition(
            name if name.isidentifier() else re.split(r"[.:]+", name)[-1] or name,
            qualified,
            kind,
            _signature(whole if kind in _NAMES or node.type in _BY_WHOLE else node, kind, _body(node, kind)),
            _first_row(whole) + 1,
            named.start_point.row + 1,
            whole.end_point.row + (whole.end_point.column > 0),
        )


def _is_import(node: "Node") -> bool:
    """Whether a variable of JavaScript holds a module: `const fs = require("fs").promises`."""
    value = node.child_by_field_name("value") if node.type == "variable_declarator" else None
    while value is not None and value.type in ("call_expression", "member_expression", "await_expression"):
        value = value.named_child(0)
    return value is not None and (value.type == "import" or value.text == b"require")


def _holds_members(node: "Node") -> bool:
    """Whether a variable's value contains definitions: an object in JavaScript, `Struct.new do` in Ruby."""
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    return value is not None and (value.type == "object" or value.child_by_field_name("block") is not None)


def _kind(node: "Node", kind: str, outer_kind: str) -> str:
    if kind == "function" and (outer_kind in _TYPES or node.type == "assignment_expression"):
        left = node.child_by_field_name("left")
        return "method" if left is None or b".prototype." in (left.text or b"") else kind
    if kind == "class" and node.type == "class_declaration" and node.children:
        word = _text(node.child_by_field_name("declaration_kind"))  # in Swift
        if word in _SWIFT_KINDS:
            return word
        if any(_text(child) == "interface" for child in node.children[:3]):  # in Kotlin
            return "interface"
    if node.type == "type_spec":  # in Go
        inner = node.child_by_field_name("type")
        return {"struct_type": "struct", "interface_type": "interface"}.get(inner.type if inner else "", kind)
    return kind


def _text(node: "Node | None") -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def _name(node: "Node") -> tuple[str, "Node"]:
    """A definition's name and the node of the name. The name is "" if there is none, as for a class
    expression.
    """
    if node.type == "impl_item":
        typed = node.child_by_field_name("type") or node
        return re.sub(r"<.*", "", _text(typed), flags=re.DOTALL).strip(), typed
    for field in ("name", "property", "left", "key"):
        named = node.child_by_field_name(field)
        if named is not None and named.type.endswith("_pattern"):
            return "", node  # `const {a, b} = ...` only destructures another value
        if named is not None:
            text = _text(named.child_by_field_name("name") if named.type == "template_type" else named)
            if text.isidentifier():
                return text, named
            if text[:1] in ("`", "'", '"'):  # a name of several words, as tests in Kotlin have
                return " ".join(text.strip("`'\"").split()), named
            text = re.sub(r"^(?:r#|this\.|(?:module\.)?exports\.)|\s+", "", text).removeprefix("$")
            return re.sub(r"::?|\.prototype\.", ".", text), named
    declarator = node.child_by_field_name("declarator")
    if declarator is not None and declarator.type == "operator_cast":
        return _declared(declarator), declarator
    while declarator is not None:  # in C the name is inside nested declarators: `*name(arguments)`
        inner = declarator.child_by_field_name("declarator") or next(
            (child for child in declarator.named_children if child.type.endswith("declarator")), None
        )
        if inner is None:
            text = re.sub(r"\s+", "", _declared(declarator))
            while "::" in text and (plain := re.sub(r"<[^<>]*>(?=::)", "", text)) != text:
                text = plain  # `Box<T>::get` is a method of `Box`
            return text.replace("::", "."), declarator
        declarator = inner
    return _unnamed(node)


def _declared(declarator: "Node") -> str:
    """The name in the innermost declarator of a C or C++ declaration."""
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
    """The name for nodes to which the grammar gives no name field: constructors, operators, indexers, and
    some nodes of Kotlin and Lua; "" for others. Also returns the node of the name.
    """
    if node.type in _FIXED:
        return _FIXED[node.type], node
    if node.type == "simple_symbol":  # in Ruby's `attr_reader :name`
        return _text(node).removeprefix(":"), node
    if node.type == "type_alias":  # in Kotlin
        alias = node.child_by_field_name("type")
        return _text(alias), alias or node
    if node.type not in _NAMED_BY_PATTERN:
        return "", node
    if node.type in ("operator_declaration", "conversion_operator_declaration"):
        operator = node.child_by_field_name("operator") or node.child_by_field_name("type")
        return f"operator{_text(operator)}", operator or node
    named: Node | None = node
    while named is not None and named.named_children and "identifier" not in named.type:
        if named.type.endswith("index_expression"):  # in Lua
            break
        children = [child for child in named.named_children if child.type != "modifiers"]
        children = [child for child in children if child.type == "variable_declaration"] or children
        named = node.child_by_field_name("pattern") if named is node else None
        named = named or next((child for child in children if not child.type.endswith("annotation")), None)
    return (
        (re.sub(r"\s+", "", _text(named)), named) if named is not None and named is not node else ("", node)
    )


def _receiver(node: "Node") -> str:
    """The type that a Go method or a Kotlin extension belongs to; "" for others."""
    if node.type == "method_declaration":
        receiver = node.child_by_field_name("receiver")
    elif node.type in ("function_declaration", "property_declaration"):
        receiver = next((c.prev_sibling for c in node.children[:5] if c.type == "."), None)
    else:
        return ""
    if receiver is None:
        return ""
    words = re.findall(r"\w+", re.sub(r"\[.*?\]|<.*>", "", _text(receiver)))
    return words[-1] if words else ""


def _whole(node: "Node") -> "Node":
    """The definition's node with the nodes around it that belong to it: decorators, `export`, `template
    <...>`.
    """
    if node.type == "simple_symbol" and node.parent is not None:
        return node.parent.parent or node  # the call of `attr_reader`
    whole = node
    while whole.parent is not None and whole.parent.type in _WRAPPERS:
        parent = whole.parent
        siblings = [child for child in parent.named_children if child.type == whole.type]
        if len(siblings) > 1:
            break  # this definition is one of several in a group, such as `var (...)`
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
            break  # the comment is at the end of a line of code
        row = min(row, above.start_point.row)
        above = before
    return row


def _body(node: "Node", kind: str) -> "Node | None":
    """The body node of a definition. If a variable holds a function, the function's body. None if there is no
    body.
    """
    body = node.child_by_field_name("body")
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if body is None and value is not None and kind not in _NAMES:
        body = value.child_by_field_name("body")
    return body


def _start(node: "Node") -> int:
    """The first byte of a definition after its annotations and comments."""
    for child in node.children:
        if child.type == "modifiers":
            start = _start(child)
            if start < child.end_byte:
                return start
        elif not (child.type in _ANNOTATIONS or "comment" in child.type or child.type.startswith("preproc")):
            return child.start_byte
    return node.end_byte if node.child_count else node.start_byte


def _signature(node: "Node", kind: str, body: "Node | None") -> str:
    """The text of a definition up to its body, without annotations and comments, on one line."""
    start, end = _start(node), node.end_byte
    body = (
        body
        or node.child_by_field_name("block")
        or next(
            (
                child
                for child in node.named_children
                if child.type.endswith(("body", "block", "_list"))
                and child.text is not None
                and child.text.startswith(b"{")
            ),
            None,
        )
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
        # Remove the spaces that are left from parameters on several lines.
        line = re.sub(r"([(\[]) |,? (?=[)\]])| (?=,)", r"\1", line)
    return line if len(line) <= MAX_SIGNATURE_CHARS else line[:MAX_SIGNATURE_CHARS].rsplit(" ", 1)[0] + " …"


def _comments(node: "Node", start: int, end: int) -> Iterator[tuple[int, int]]:
    """The byte ranges (start, end) of the comments between two bytes."""
    for child in node.children:
        if child.start_byte >= end:
            break
        if child.end_byte > start:
            if "comment" in child.type:
                yield child.start_byte, child.end_byte
            else:
                yield from _comments(child, start, end)
