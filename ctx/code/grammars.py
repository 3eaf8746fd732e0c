"""The tree-sitter grammars: how to load them, and queries that find the definitions in each language.

A query captures each definition with its kind as the capture name. The grammars are in the extra `grammars`;
if one is missing or does not load, `load` returns None.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Parser, Query


class Grammar(NamedTuple):
    """The Python package of a grammar, the query that finds definitions, and the package's function that
    returns the language.
    """

    package: str
    query: str
    function: str = "language"


_JAVASCRIPT = """
(class_declaration) @class (class) @class
(function_declaration) @function (generator_function_declaration) @function (method_definition) @method
(variable_declarator value: [(arrow_function) (function_expression) (generator_function)]) @function
(field_definition value: [(arrow_function) (function_expression)]) @method
(assignment_expression left: (member_expression) right: [(arrow_function) (function_expression)]) @function
(pair value: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator) @variable))
(program (variable_declaration (variable_declarator) @variable))
(program (export_statement (lexical_declaration (variable_declarator) @variable)))
"""
_TYPESCRIPT = (
    _JAVASCRIPT.replace("field_definition", "public_field_definition")
    + """
(abstract_class_declaration) @class (interface_declaration) @interface (enum_declaration) @enum
(type_alias_declaration) @type (internal_module) @namespace (module) @namespace (function_signature) @function
(method_signature) @method (abstract_method_signature) @method
"""
)
_C = """
(function_definition) @function (type_definition) @type
(struct_specifier body: (_)) @struct (union_specifier body: (_)) @union (enum_specifier body: (_)) @enum
(preproc_function_def) @macro (preproc_def value: (_)) @macro
(translation_unit (declaration declarator: (init_declarator) @variable))
"""

GRAMMARS: Mapping[str, Grammar] = {
    "text/x-python": Grammar(
        "tree_sitter_python",
        "(class_definition) @class (function_definition) @function (type_alias_statement) @type"
        "(module (expression_statement (assignment left: (identifier)) @variable))",
    ),
    "text/javascript": Grammar("tree_sitter_javascript", _JAVASCRIPT),
    "text/x-typescript": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_typescript"),
    "text/x-tsx": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_tsx"),
    "text/x-go": Grammar(
        "tree_sitter_go",
        "(function_declaration) @function (method_declaration) @method (method_elem) @method"
        "(type_spec) @type (type_alias) @type (source_file (const_declaration (const_spec) @constant))"
        "(source_file (var_declaration (var_spec) @variable))"
        "(source_file (var_declaration (var_spec_list (var_spec) @variable)))",
    ),
    "text/x-rust": Grammar(
        "tree_sitter_rust",
        "(function_item) @function (function_signature_item) @function (struct_item) @struct"
        "(enum_item) @enum (union_item) @union (trait_item) @trait (impl_item) @impl"
        "(mod_item body: (_)) @module"
        "(type_item) @type (associated_type) @type (const_item) @constant (static_item) @variable"
        "(macro_definition) @macro",
    ),
    "text/x-java": Grammar(
        "tree_sitter_java",
        "(class_declaration) @class (interface_declaration) @interface (enum_declaration) @enum"
        "(record_declaration) @record (annotation_type_declaration) @annotation (method_declaration) @method"
        "(annotation_type_element_declaration) @method (constructor_declaration) @constructor"
        "(compact_constructor_declaration) @constructor (field_declaration (variable_declarator) @field)",
    ),
    "text/x-c": Grammar("tree_sitter_c", _C),
    "text/x-c++": Grammar(
        "tree_sitter_cpp",
        _C + "(declaration_list (declaration declarator: (init_declarator) @variable))"
        "(class_specifier body: (_)) @class (namespace_definition) @namespace (alias_declaration) @type"
        "(concept_definition) @concept",
    ),
    "text/x-csharp": Grammar(
        "tree_sitter_c_sharp",
        "(class_declaration) @class (struct_declaration) @struct (interface_declaration) @interface"
        "(enum_declaration) @enum (record_declaration) @record (delegate_declaration) @delegate"
        "(method_declaration) @method (constructor_declaration) @constructor (destructor_declaration) @method"
        "(operator_declaration) @method (conversion_operator_declaration) @method"
        "(indexer_declaration) @property (property_declaration) @property (event_declaration) @event"
        "(local_function_statement) @function"
        "(field_declaration (variable_declaration (variable_declarator) @field))"
        "(event_field_declaration (variable_declaration (variable_declarator) @event))"
        "(namespace_declaration) @namespace (file_scoped_namespace_declaration) @namespace",
    ),
    "text/x-ruby": Grammar(
        "tree_sitter_ruby",
        "(class) @class (module) @module (method) @method (singleton_method) @method"
        "(assignment left: (constant)) @constant (alias) @method"
        "(call method: (identifier) @_word arguments: (argument_list (simple_symbol) @property)"
        ' (#match? @_word "^([a-z]*attr_(reader|writer|accessor)|def_[a-z_]+)$"))'
        "(call method: (identifier) @_word arguments: (argument_list . (simple_symbol) @method)"
        ' (#any-of? @_word "define_method" "define_singleton_method" "alias_method"))',
    ),
    "text/x-php": Grammar(
        "tree_sitter_php",
        "(class_declaration) @class (interface_declaration) @interface (trait_declaration) @trait"
        "(enum_declaration) @enum (function_definition) @function (method_declaration) @method"
        "(const_element) @constant (property_element) @property",
        "language_php",
    ),
    "text/x-kotlin": Grammar(
        "tree_sitter_kotlin",
        "(class_declaration) @class (object_declaration) @object (companion_object) @object"
        "(function_declaration) @function (secondary_constructor) @constructor (type_alias) @type"
        "(source_file (property_declaration) @property) (class_body (property_declaration) @property)",
    ),
    "text/x-swift": Grammar(
        "tree_sitter_swift",
        "(class_declaration) @class (protocol_declaration) @protocol (function_declaration) @function"
        "(protocol_function_declaration) @method (init_declaration) @constructor (deinit_declaration) @method"
        "(typealias_declaration) @type (class_body (property_declaration) @property)",
    ),
    "text/x-scala": Grammar(
        "tree_sitter_scala",
        "(class_definition) @class (object_definition) @object (trait_definition) @trait"
        "(enum_definition) @enum (function_definition) @function (function_declaration) @function"
        "(type_definition) @type"
        "(template_body (val_definition) @variable)",
    ),
    "text/x-shellscript": Grammar("tree_sitter_bash", "(function_definition) @function"),
    "text/x-lua": Grammar(
        "tree_sitter_lua",
        "(function_declaration) @function"
        "(assignment_statement (expression_list value: (function_definition))) @function"
        "(field value: (function_definition)) @function",
    ),
}  # fmt: skip


@cache
def load(media_type: str) -> "tuple[Parser, Query] | None":
    """The parser for a media type and the query for its definitions; None if it has no grammar that
    can be loaded.

    tree-sitter is imported here because it takes about 40 ms and only indexing needs it.
    """
    grammar = GRAMMARS.get(media_type)
    if grammar is None:
        return None
    try:
        from tree_sitter import Language, Parser, Query

        language = Language(getattr(import_module(grammar.package), grammar.function)())
        return Parser(language), Query(language, grammar.query)
    except (ImportError, ValueError):  # ValueError: the versions of the grammar and tree-sitter do not fit
        return None
