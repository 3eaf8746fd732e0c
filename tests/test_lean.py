"""The stand-ins for `typing` and `re.compile` behave as the originals do."""

import copy
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from ctx import lean


class Original(typing.NamedTuple):
    name: str
    size: int = 3
    tags: tuple[str, ...] = ()


class Lean(lean.NamedTuple):
    name: str
    size: int = 3
    tags: tuple[str, ...] = ()


class Longer(Lean):
    """A finished one with a method more."""

    @property
    def double(self) -> int:
        return self.size * 2


def test_a_lean_named_tuple_is_made_compared_and_shown_as_the_original_is() -> None:
    for values, named in (
        (("a",), {}),
        (("a", 1), {"tags": ("x",)}),
        ((), {"size": 2, "name": "b"}),
        (("a", 1, ("y",)), {}),
    ):
        record: typing.Any = Lean(*values, **named)
        original: typing.Any = Original(*values, **named)
        assert record == original
        assert hash(record) == hash(original)
        assert repr(record) == repr(original).replace("Original", "Lean")
        assert record._asdict() == original._asdict()
        assert record._replace(size=9) == original._replace(size=9)
        assert (record.name, record.size, record.tags) == tuple(original)
    assert Lean._fields == Original._fields
    assert Lean._field_defaults == Original._field_defaults
    assert tuple(Lean._make(["a", 1, ()])) == Original._make(["a", 1, ()])


@pytest.mark.parametrize("kind", [Original, Lean])
def test_wrong_values_are_refused_as_the_original_refuses_them(kind: typing.Any) -> None:
    for values, named in (((), {}), (("a", 1, (), 4), {}), (("a",), {"name": "b"}), (("a",), {"unknown": 1})):
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(TypeError):
        kind._make(["a"])
    with pytest.raises((TypeError, ValueError)):
        kind("a")._replace(unknown=1)
    record = kind("a")
    with pytest.raises(AttributeError):
        record.name = "b"
    with pytest.raises(AttributeError):
        record.other = "b"


def test_a_lean_named_tuple_is_matched_copied_and_pickled() -> None:
    record = Lean("a", 7)
    match record:
        case Lean(name, size, _):
            assert (name, size) == ("a", 7)
    assert pickle.loads(pickle.dumps(record)) == record
    assert type(copy.copy(record)) is Lean
    assert type(copy.deepcopy(record)) is Lean


def test_a_class_may_add_methods_to_a_finished_one() -> None:
    longer = Longer("a", size=4)
    assert (longer.double, longer._replace(size=5).double, repr(longer)) == (
        8,
        10,
        "Longer(name='a', size=4, tags=())",
    )


def test_a_lean_pattern_is_the_compiled_one_from_its_first_use_on() -> None:
    words = lean.pattern("[A-Z]+", re.IGNORECASE)
    assert words.findall("ab 1 Cd") == ["ab", "Cd"]
    assert words.pattern == "[A-Z]+"
    assert words.sub("-", "ab1") == "-1"


def project_of_one_page(folder: Path, provider: str = "disabled") -> None:
    (folder / "ctx.toml").write_text(
        f'[connectors.filesystem]\nroot = "docs"\n[embedding]\nprovider = "{provider}"\n'
    )
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text("# A page\n\nOf words.\n")


def modules_of(command: list[str], folder: Path) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it has loaded at its end."""
    code = f"import sys, ctx.cli; ctx.cli.main({command}); print(*sorted(sys.modules))"
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    *lines, modules = completed.stdout.splitlines()
    return "\n".join(lines), set(modules.split())


def test_a_keyword_search_imports_none_of_what_is_dear(tmp_path: Path) -> None:
    project_of_one_page(tmp_path)
    modules_of(["index", "--no-progress"], tmp_path)
    printed, modules = modules_of(["search", "page", "words"], tmp_path)
    assert "page.md" in printed
    dear = {
        "typing",
        "contextlib",
        "re",
        "enum",
        "dataclasses",
        "logging",
        "pathlib",
        "argparse",
        "json",
        "asyncio",
        "numpy",
        "subprocess",
        "threading",
        "uuid",
        "hashlib",
        "bisect",
        "sqlite3",
        "ctx.formats.table",
        "zlib",
        "ctx.named_settings",
        "ctx.served_settings",
        "ctx.file_writing",
        "ctx.tools.base",
        "ctx.store.base",
        "ctx.store.documents",
        "ctx.store.inventory",
        "ctx.store.embeddings",
        "ctx.store.rows",
        "ctx.items",
        "ctx.refusals",
        "ctx.workspace",
        "ctx.identity",
        "ctx.store.sqlite_write",
        "ctx.store.write",
    }
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (dear & modules) - set(loaded.stdout.split())
    assert of_the_cluster(modules) == []


def of_the_cluster(modules: set[str]) -> list[str]:
    """What only several machines need."""
    return sorted(name for name in modules if re.search("opensearch|postgres|psycopg|shared_", name))


@pytest.mark.parametrize(
    "command",
    [["index"], ["stats"], ["memory", "list"], ["key", "list"], ["openapi"], ["doctor"], ["worker"]],
)
def test_nothing_of_the_cluster_is_loaded_where_no_url_is_configured(
    command: list[str], tmp_path: Path
) -> None:
    project_of_one_page(tmp_path)
    _, modules = modules_of(command, tmp_path)
    assert "ctx.workspace" in modules
    assert of_the_cluster(modules) == []


@pytest.mark.parametrize("provider", ["disabled", "local"])
def test_an_index_run_that_finds_nothing_changed_imports_nothing_that_only_a_change_needs(
    provider: str, tmp_path: Path
) -> None:
    project_of_one_page(tmp_path, provider)
    for _ in range(3):  # a file as young as the first run is looked at once more
        printed, modules = modules_of(["index", "--no-progress", "--no-embed"], tmp_path)
    assert "1 unchanged" in printed
    dear = {
        "argparse",
        "ctx.search",
        "hashlib",
        "numpy",
        "shutil",
        "sqlite3.dump",
        "tantivy",
        "typing",
    }
    assert not dear & modules


def test_records_of_rows_are_what_calling_the_class_gives() -> None:
    assert lean.records(Lean, [("a", 1, ()), ("b", 2, ("x",))]) == [Lean("a", 1), Lean("b", 2, ("x",))]
    assert type(lean.records(Lean, [("a", 1, ())])[0]) is Lean
    assert lean.records(Lean, []) == []
