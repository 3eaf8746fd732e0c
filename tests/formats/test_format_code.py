"""Source code and configuration: definitions as headings."""

import sys
from types import ModuleType

import pytest

from ctx.code.grammars import load
from ctx.formats.code import definitions_by_patterns, reader
from ctx.formats.extract import extract
from ctx.models import Content


def _outline(text: str | bytes, name: str) -> list[tuple[int, str]]:
    extracted = extract(Content(text), name)
    assert extracted is not None
    return [(heading.level, heading.title) for heading in extracted.headings]


PYTHON = '''"""Module."""
import os

X = 1


@decorator
class Store(Base):
    """Doc."""

    limit = 3

    # why
    async def put(self, x):
        def inner():
            pass
        return x

    flag = True


def main() -> None:
    pass


if __name__ == "__main__":
    main()
'''


def test_python_definitions_nest_and_end_where_a_statement_shows_it() -> None:
    assert _outline(PYTHON, "a.py") == [
        (1, "Store"),
        (2, "put"),
        (3, "inner"),
        (3, ""),
        (2, ""),
        (1, "main"),
        (1, ""),
    ]


def test_comments_and_decorators_above_belong_to_a_definition() -> None:
    extracted = extract(Content(PYTHON), "a.py")
    assert extracted is not None
    store, method = extracted.headings[:2]
    assert extracted.body[store.start :].startswith("@decorator\nclass Store")
    assert extracted.body[method.start :].startswith("    # why\n    async def put")


@pytest.mark.parametrize(
    ("name", "text", "outline"),
    [
        (
            "a.ts",
            "export class Api {\n  private x = 1;\n  async get(id: string): Promise<void> {\n    if (id) "
            "{\n    }\n  }\n}\n\n"
            "export const load = async (a: number) => {\n  return a;\n};\n\nexport interface Opts {\n  a: "
            "string;\n}\nfunction plain() {}\n",
            [(1, "Api"), (2, "get"), (1, "load"), (1, "Opts"), (1, "plain")],
        ),
        (
            "a.go",
            "package x\n\n// Serve serves.\nfunc (s *Server) Serve(l net.Listener) error {\n\treturn "
            "nil\n}\n\ntype Server struct {\n\tx int\n}\n\nfunc New[T any]() {}\n",
            [(1, "Server.Serve"), (1, "Server"), (1, "New")],
        ),
        (
            "a.rs",
            "#[derive(Debug)]\npub struct Foo<T> {\n    x: T,\n}\n\nimpl<T: Clone> Foo<T> {\n    pub async "
            "fn bar(&self) {}\n}\n\nmacro_rules! m {\n}\n",
            [(1, "Foo"), (1, "Foo"), (2, "bar"), (1, "m")],
        ),
        (
            "A.java",
            "package x;\n\npublic final class A<T> extends B {\n    private int x;\n\n    @Override\n    "
            "public List<String> get(int a, int b) {\n        return f(a);\n    }\n}\n",
            [(1, "A"), (2, "get")],
        ),
        (
            "a.c",
            "#include <x.h>\n\n#define MAX(a, b) (a)\n\nstruct point {\n  int x;\n};\n\nstatic int\nfoo "
            "(int a)\n{\n  return bar(a);\n}\n\n"
            "char *name(const char *s) {\n  if (s) {\n  }\n}\nint declared(int);\n",
            [(1, "MAX"), (1, "point"), (1, "foo"), (1, "name"), (1, "")],
        ),
        (
            "a.cpp",
            "namespace ns {\nclass W : public B {\n public:\n  int x;\n};\n}\nvoid W::run(int a) {\n}\n",
            [(1, "ns"), (2, "W"), (1, "W.run")],
        ),
        (
            "a.rb",
            "module M\n  class C < D\n    def self.go!(x)\n      x\n    end\n  end\nend\n",
            [(1, "M"), (2, "C"), (3, "go!")],
        ),
        ("a.php", "<?php\nclass A {\n    public static function f($x) {\n    }\n}\n", [(1, "A"), (2, "f")]),
        (
            "a.lua",
            "local function f(x)\nend\n\nM.g = function(y)\nend\nfunction M:h() end\n",
            [(1, "f"), (1, "M.g"), (1, "M.h")],
        ),
        (
            "a.sh",
            "#!/bin/sh\nset -e\n\nstart() {\n  echo x\n}\nfunction stop {\n  echo\n}\nstart\n",
            [(1, "start"), (1, "stop"), (1, "")],
        ),
        (
            "a.sql",
            "create table if not exists users (\n  id int\n);\nCREATE OR REPLACE FUNCTION f() RETURNS int "
            "AS $$\n",
            [(1, "users"), (1, "f")],
        ),
        ("a.toml", "x = 1\n[tool.ruff]\ny = 2\n[[bin]]\n", [(1, "tool.ruff"), (1, "bin")]),
        (
            "a.yaml",
            "version: 1\nservices:\n  web:\n    image: x\nvolumes:\n",
            [(1, "services"), (1, "volumes")],
        ),
        ("a.ini", "[main]\nx=1\n; [no]\n[other] # y\n", [(1, "main"), (1, "other")]),
        ("a.tf", 'resource "aws_s3_bucket" "logs" {\n}\n', [(1, "resource aws_s3_bucket.logs")]),
        ("a.kt", "data class P(val x: Int)\n\nfun main(args: Array<String>) {\n}\n", [(1, "P"), (1, "main")]),
        ("a.json", '{\n  "class": "x"\n}\n', []),
        ("Makefile", "all: build\n\nbuild:\n\tcc\n", [(1, "all"), (1, "build")]),
    ],
)
def test_definitions_of_many_languages_are_found(
    name: str, text: str, outline: list[tuple[int, str]]
) -> None:
    assert _outline(text, name) == outline


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_script_without_a_suffix_is_read_by_the_grammar_of_its_program(mark: bytes) -> None:
    text = mark + b"#!/usr/bin/env ruby\nclass A\n  attr_reader :b\n  def c\n  end\nend\n"
    assert _outline(text, "tool") == [(1, "A"), (2, "c")]


@pytest.mark.parametrize("replaced", [None, ModuleType("tree_sitter_python")])
def test_a_language_whose_grammar_is_missing_or_fails_is_read_by_patterns(
    monkeypatch: pytest.MonkeyPatch, replaced: ModuleType | None
) -> None:
    if replaced is not None:
        replaced.__dict__["language"] = lambda: 0  # refused by tree-sitter, as the ABI of another version is
    monkeypatch.setitem(sys.modules, "tree_sitter_python", replaced)
    load.cache_clear()
    try:
        parsed = reader("text/x-python")("class Store:\n    def find(self):\n        pass\n\nx = 1\n")
    finally:
        load.cache_clear()
    assert [each.qualified for each in parsed.definitions] == ["Store", "Store.find"]
    assert [(each.level, each.title) for each in parsed.headings] == [(1, "Store"), (2, "find")]


@pytest.mark.parametrize(
    ("media_type", "text", "names"),
    [
        ("text/javascript", "res.send = function send(body) {\n  const x = 1\n}\nexports.go = (a) => a\n", ["go", "send"]),
        ("text/x-typescript", "export const LIMIT = 3\nclass A {\n  open(): void {\n  }\n}\n", ["A", "LIMIT", "open"]),
        ("text/x-lua", "function M.open(path)\n", ["open"]),
        ("text/x-groovy", "String name(int x) {\n}\nimplementation project(':core')\n", ["name"]),
        ("text/x-d", "// a struct of numbers\nprivate struct Pair {\n", ["Pair"]),
    ],
)  # fmt: skip
def test_what_code_defines_is_named_without_what_it_is_in(
    media_type: str, text: str, names: list[str]
) -> None:
    found = definitions_by_patterns(text, media_type)
    assert sorted(each.name for each in found) == names
    assert all(each.name in text.splitlines()[each.name_line - 1] for each in found)
