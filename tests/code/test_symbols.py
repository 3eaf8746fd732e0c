"""Definitions of a source file: kind, qualified name and lines, in every language that has a grammar."""

import pytest

from ctx.code.outline import candidates
from ctx.code.symbols import definitions

CASES = {
    "text/x-python": (
        'X = 1\n@deco\nasync def f(a,\n     b):\n    """def no(): x"""\n    def inner(): pass\n\n# about\nclass A(B):\n'
        "    y = 2\n    @property\n    def z(self): return 1\n",
        ["variable X 1-1", "function f 2-6", "function f.inner 6-6", "class A 8-12", "method A.z 11-12"],
    ),
    "text/x-go": (
        "package a\n\n// Doc.\nfunc (s *Store[T]) Find(x int) error {\n}\n\ntype (\n\tform struct{ A int }\n"
        "\tI interface { M() }\n)\nconst (\n a = 1\n b = 2\n)\n",
        [
            "method Store.Find 3-5",
            "struct form 8-8",
            "interface I 9-9",
            "method I.M 9-9",
            "constant a 12-12",
            "constant b 13-13",
        ],
    ),
    "text/x-rust": (
        "/// Doc\n#[derive(Debug)]\npub struct S { a: u8 }\nimpl<T> fmt::Display for Store<T> {\n  fn fmt(&self) -> R {}\n}\n"
        "fn r#async() {}\nmod m { fn x() {} }\n",
        [
            "struct S 1-3",
            "impl Store 4-6",
            "method Store.fmt 5-5",
            "function async 7-7",
            "module m 8-8",
            "function m.x 8-8",
        ],
    ),
    "text/x-java": (
        "class A {\n  A(int x) {}\n  @Override\n  public Map<?, X> f(\n   int a) { return null; }\n}\n",
        ["class A 1-6", "constructor A.A 2-2", "method A.f 3-5"],
    ),
    "text/x-c": (
        "/* Doc. */\nstatic const char *\nname(void)\n{\n}\n#define M(x) x\nstruct S { int a; };\nCALL(atan)\n",
        ["function name 1-5", "macro M 6-6", "struct S 7-7"],
    ),
    "text/x-c++": (
        "template<typename T>\nclass A {\n int f() const { return 1; }\n A() {}\n operator bool() const {return 1;}\n};\n"
        "namespace n::m {\nauto parse(C& c) -> char* { }\n}\nint *A::g(int x) { }\n",
        [
            "class A 1-6",
            "method A.f 3-3",
            "method A.A 4-4",
            "method A.operator bool 5-5",
            "namespace n.m 7-9",
            "function n.m.parse 8-8",
            "function A.g 10-10",
        ],
    ),
    "text/x-csharp": (
        "namespace Serilog.Core;\n\n/// <summary>x</summary>\n[Attr]\npublic class A<T> : B {\n public void Fatal<T0>(string t);\n"
        " public X Get() => 1;\n public int P {get;set;}\n}\n",
        [
            "namespace Serilog.Core 1-1",
            "class Serilog.Core.A 3-9",
            "method Serilog.Core.A.Fatal 6-6",
            "method Serilog.Core.A.Get 7-7",
            "property Serilog.Core.A.P 8-8",
        ],
    ),
    "text/javascript": (
        "const f = (n) => {};\nmodule.exports.q = function () {};\nclass A { m() {} }\nfunction g() {}\n",
        [
            "function f 1-1",
            "function q 2-2",
            "class A 3-3",
            "method A.m 3-3",
            "function g 4-4",
        ],
    ),
    "text/x-typescript": (
        "export const f = async (n: number) => {};\n// doc\nexport class A {\n private x = () => {};\n}\ninterface I { m(): void }\n"
        "type T = {a: 1};\nenum E {A}\n",
        [
            "function f 1-1",
            "class A 2-5",
            "method A.x 4-4",
            "interface I 6-6",
            "method I.m 6-6",
            "type T 7-7",
            "enum E 8-8",
        ],
    ),
    "text/x-ruby": (
        "module M\n  class A < B\n    def self.x; end\n    def y?; end\n  end\nend\n",
        ["module M 1-6", "class M.A 2-5", "method M.A.x 3-3", "method M.A.y? 4-4"],
    ),
    "text/x-php": (
        "<?php\nclass X { const Y = 1; public function f() {} }\nfunction g() {}\n",
        ["class X 2-2", "constant X.Y 2-2", "method X.f 2-2", "function g 3-3"],
    ),
    "text/x-kotlin": (
        "@Test fun readInt(): Int = 3\n/** Doc. */\nclass A(val x: Int) {\n  private val p by lazy { 3 }\n  fun f() {}\n}\n"
        "interface B { fun g() }\n",
        [
            "function readInt 1-1",
            "class A 2-6",
            "property A.p 4-4",
            "method A.f 5-5",
            "interface B 7-7",
            "method B.g 7-7",
        ],
    ),
    "text/x-swift": (
        "class A {\n init(_ v: Int) {}\n func f() {}\n}\nextension A { func z() {} }\nprotocol P { func g() }\n",
        [
            "class A 1-4",
            "constructor A.init 2-2",
            "method A.f 3-3",
            "extension A 5-5",
            "method A.z 5-5",
            "protocol P 6-6",
            "method P.g 6-6",
        ],
    ),
    "text/x-scala": (
        "class A { def f(x: Int): Int = 1 }\nobject O\ntrait T\n",
        ["class A 1-1", "method A.f 1-1", "object O 2-2", "trait T 3-3"],
    ),
    "text/x-lua": (
        "local function f() end\nfunction M:h() end\nM.j = function() end\n",
        ["function f 1-1", "function M.h 2-2", "function M.j 3-3"],
    ),
    "text/x-shellscript": ("# about\nf() { :; }\nfunction g { :; }\n", ["function f 1-2", "function g 3-3"]),
}


# What a language has beside its plain definitions.
FORMS = {
    "text/javascript": (
        "const fs = require('fs').promises\nconst d = require('debug')('x')\nReply.prototype.send = function () {}\n"
        "const hooks = {\n  run () {},\n  stop: () => 2\n}\nconst limit = 3\n",
        [
            "method Reply.send 3-3",
            "variable hooks 4-7",
            "method hooks.run 5-5",
            "function hooks.stop 6-6",
            "variable limit 8-8",
        ],
    ),
    "text/x-python": ("double = lambda x: x\ntype V = list\n", ["variable double 1-1", "type V 2-2"]),
    "text/x-c": (
        "typedef int (*callback)(int);\nstatic const int table[] = {\n 1\n};\nint count = 0;\nint f(int);\n",
        ["type callback 1-1", "variable table 2-4", "variable count 5-5"],
    ),
    "text/x-c++": (
        "template <class T> T Box<T>::get() { }\nbool A::operator<(const A &o) { }\nconstexpr int kMax = 3;\n",
        ["function Box.get 1-1", "function A.operator< 2-2", "variable kMax 3-3"],
    ),
    "text/x-rust": ("trait A {\n type Out;\n}\n", ["trait A 1-3", "type A.Out 2-2"]),
    "text/x-csharp": (
        "class A {\n const int Max = 1, Min = 0;\n event Handler Changed;\n}\n",
        ["class A 1-4", "field A.Max 2-2", "field A.Min 2-2", "event A.Changed 3-3"],
    ),
    "text/x-ruby": (
        "class A\n  attr_reader :x, :y\n  alias z x\n  define_method(:w) do\n    1\n  end\n  class << self\n"
        "    def v; end\n  end\n  P = Struct.new(:a) do\n    def u; end\n  end\n  def_node_matcher :m?, 'x'\nend\n",
        [
            "class A 1-14",
            "property A.x 2-2",
            "property A.y 2-2",
            "method A.z 3-3",
            "method A.w 4-6",
            "method A.v 8-8",
            "constant A.P 10-12",
            "method A.P.u 11-11",
            "property A.m? 13-13",
        ],
    ),
    "text/x-php": ("<?php\nclass A {\n  private ?int $n = 1;\n}\n", ["class A 2-4", "property A.n 3-3"]),
    "text/x-kotlin": (
        "fun <T> List<T>.second(): T = this[1]\nval String.last: Char\n  get() = this[0]\ntypealias N = String\n",
        ["function List.second 1-1", "property String.last 2-3", "type N 4-4"],
    ),
}


@pytest.mark.parametrize("media_type", FORMS)
def test_names_given_by_assignment_call_or_receiver(media_type: str) -> None:
    text, expected = FORMS[media_type]
    found = definitions(text, media_type) or []
    assert [f"{each.kind} {each.qualified} {each.start_line}-{each.end_line}" for each in found] == expected


@pytest.mark.parametrize(
    ("text", "media_type", "asked"),
    [
        ("Reply.prototype.send = function () {}\n", "text/javascript", "Reply.prototype.send"),
        ("package a\nfunc (t *Tree) Walk() {}\n", "text/x-go", "(*Tree).Walk"),
        ("template <class T> T Box<T>::get() { }\n", "text/x-c++", "Box<int>::get"),
        ("bool A::operator<(const A &o) { }\n", "text/x-c++", "A::operator<"),
        ("class A\n  attr_writer :x\nend\n", "text/x-ruby", "A#x"),
    ],
)
def test_a_name_is_found_as_its_language_writes_it(text: str, media_type: str, asked: str) -> None:
    known = definitions(text, media_type) or []
    assert candidates(known, asked) == known[-1:]


@pytest.mark.parametrize("media_type", CASES)
def test_definitions_with_their_kind_qualified_name_and_lines(media_type: str) -> None:
    text, expected = CASES[media_type]
    found = definitions(text, media_type) or []
    assert [f"{each.kind} {each.qualified} {each.start_line}-{each.end_line}" for each in found] == expected


def test_a_signature_is_one_line_without_annotations_and_body() -> None:
    text = "@Override\npublic int f(\n    int a,\n    int b) {\n  return a;\n}\n"
    (method,) = (
        each for each in definitions(f"class A {{\n{text}}}\n", "text/x-java") or [] if each.name == "f"
    )
    assert method.signature == "public int f(int a, int b)"
    assert method.name_line == 3


def test_a_signature_leaves_out_every_attribute() -> None:
    text = "class A {\n  [Case(1)]\n#if MORE\n  [Case(2)]\n#endif\n  // each\n  public void F(int a) { }\n}\n"
    found = definitions(text, "text/x-csharp") or []
    assert [each.signature for each in found] == ["class A", "public void F(int a)"]


@pytest.mark.parametrize(
    ("text", "media_type", "signature"),
    [
        ("module A # one\n  ##\n  # two\n  class B\n  end\nend\n", "text/x-ruby", "module A"),
        ("def a(x)\n  # at most once a minute\n  return 0\nend\n", "text/x-ruby", "def a(x)"),
        ("def f(a):  # noqa: ARG001\n    return 1\n", "text/x-python", "def f(a)"),
        ("def f(\n    a,  # the first\n    b='#',\n):\n    pass\n", "text/x-python", "def f(a, b='#')"),
        ("function f (a /* é */, b) // c\n{ }\n", "text/javascript", "function f (a, b)"),
        ("X = 1  # seconds\n", "text/x-python", "X = 1"),
        ("export const f = ({ a }) => {\n  return a\n}\n", "text/javascript", "export const f = ({ a }) =>"),
    ],
)
def test_a_signature_has_no_comments(text: str, media_type: str, signature: str) -> None:
    assert [each.signature for each in definitions(text, media_type) or []][:1] == [signature]


def test_a_header_of_c_may_be_cpp_and_typescript_may_hold_jsx() -> None:
    (header,) = definitions("class A {\npublic:\n  int a;\n};\n", "text/x-c") or []
    assert header.kind == "class"
    (view,) = definitions("export const View = () => <b>{1}</b>;\n", "text/x-typescript") or []
    assert (view.kind, view.name) == ("function", "View")


def test_a_language_without_a_grammar_has_none_and_broken_code_does_not_fail() -> None:
    assert definitions("x", "text/x-cobol") is None
    assert definitions("def f(:\n  \udfff\n class", "text/x-python") is not None
    assert definitions("", "text/x-go") == []
