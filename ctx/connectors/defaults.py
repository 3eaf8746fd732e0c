"""What a source takes and never enters where its configuration says nothing."""

from ctx.formats.table import DOCUMENT_SUFFIXES

MAX_FILE_BYTES = 10_000_000  # a larger text file is usually a log or a dump

_PROSE = "md markdown mdx qmd rst txt adoc asciidoc org tex html htm xhtml ipynb"
_PROSE_NAMES = "README CHANGELOG CHANGES NEWS CONTRIBUTING LICENSE NOTICE AUTHORS"
_CODE = """
    py pyi js mjs cjs jsx ts tsx vue svelte
    c h cc cpp cxx hh hpp m mm cs fs
    java kt kts scala groovy clj cljs go rs
    rb php swift dart lua pl pm r R jl
    ex exs erl hs ml mli elm nim zig sol
    sh bash zsh fish ps1 sql graphql proto tf
    css scss cmake toml yaml yml ini cfg
"""
_CODE_NAMES = "Makefile Dockerfile CMakeLists.txt Justfile justfile"

_SUFFIXES = (*_PROSE.split(), *DOCUMENT_SUFFIXES, *_CODE.split())

DEFAULT_INCLUDE_GLOBS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *(f"**/*.{suffix}" for suffix in _SUFFIXES),
            *(
                f"**/*.{suffix.upper()}" for suffix in _SUFFIXES
            ),  # REPORT.PDF, as cameras, scanners and old systems name files
            *(f"**/{name}" for name in (*_PROSE_NAMES.split(), *_CODE_NAMES.split())),
        )
    )
)
"""What people write: prose, documents (PDF, Office, mail), notebooks, source code, settings; not data (JSON,
CSV) or media.
"""

_MACHINERY = ".git .hg .svn .bzr .jj CVS .ctx"  # of version control, and our own
_COPIES = """
    node_modules bower_components __pycache__ __pypackages__
    .venv .tox .nox .eggs .direnv .cache .gradle .terraform .yarn .pnpm-store .next .nuxt
    .mypy_cache .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints .stack-work .dart_tool
    .Trash .Trashes .Spotlight-V100 .fseventsd $RECYCLE.BIN lost+found
"""
_KEYS = ".ssh .gnupg .aws .kube"  # nobody means to publish these by naming their home folder

SKIPPED_FOLDERS = frozenset(f"{_MACHINERY} {_COPIES} {_KEYS}".split())
"""Folders that are never entered, whatever the globs say: copies, caches and keys, not documents."""

_DOCUMENTS = "pdf doc docx odt rtf ppt pptx odp xls xlsx ods csv epub eml msg"
EXPECTED_KINDS = frozenset(_DOCUMENTS.split())
"""Documents that people keep in folders: where the globs leave them out, the report says so.
Four letters at most.
"""
