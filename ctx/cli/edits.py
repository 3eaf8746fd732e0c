"""Edits JSON and TOML files that belong to other programs. An edit is written, with a `.bak` copy of the old
text, or shown as a diff.
"""

import difflib
import json
import os
import re
import shutil
import stat
import sys
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ctx import files
from ctx.errors import ConfigError
from ctx.models import JSON

_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+")|//[^\n]*+|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'("(?:\\.|[^"\\])*+")|,(?=\s*+[}\]])')


def own_command() -> str:
    """The path of the `ctx` command, for programs without the shell's PATH. Falls back to "ctx" itself."""
    installed = os.path.join(os.path.dirname(sys.executable), "ctx")
    return installed if os.path.exists(installed) else shutil.which("ctx") or "ctx"


def file_at(path: str, *, shared: bool, root: str | None = None) -> str:
    """Returns the absolute path to write for `path`. Raises `ConfigError`.

    A user's own file may be a link, for example into a folder of dotfiles. In a project (`shared`, below
    `root` or the current folder) no part of the path may be a link, because links may have come with a clone.
    """
    if not shared:
        return os.path.realpath(path)
    path = os.path.abspath(path)
    try:
        files.check_file(path, beneath=root or os.getcwd())
    except FileNotFoundError:
        pass  # the file or its folder does not exist yet
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def read_text(path: str) -> str | None:
    """The text of a file; None if the file does not exist. Raises `ConfigError`."""
    try:
        # O_NONBLOCK: if the path is a pipe, opening it would block for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8", newline="") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} cannot be read: it is not a file")
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}") from error


@dataclass(frozen=True)
class Edit:
    """A change of a file's text from `before` to `after`. `before` is None for a new file. `after` is None to
    delete the file. `private`: only the owner may read a new file.
    """

    path: str
    before: str | None
    after: str | None
    private: bool

    def apply(self) -> None:
        """Writes the file in one step and keeps the old text as `.bak`. Raises `ConfigError`, also if the
        file has changed since it was read.
        """
        with files.writing(self.path, ConfigError):
            if self.private:
                files.make_folder(os.path.dirname(self.path))
            else:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            mode = 0o600 if self.private else 0o644
            if read_text(self.path) != self.before:
                raise ConfigError(f"{self.path} was changed by another program: run this again")
            if self.before is not None:
                mode = os.stat(self.path).st_mode & 0o777
                if not mode & 0o222:
                    raise ConfigError(f"{self.path} is write-protected: `chmod u+w` it first")
                if self.after is None:
                    os.unlink(self.path)
                    return
                files.replace(self.path + ".bak", self.before.encode(), mode=mode)
            files.replace(self.path, (self.after or "").encode(), mode=mode)

    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, self.path, f"{self.path} (new)"))


# -- documents -----------------------------------------------------------------------------------------------


def parsed(form: str, text: str | None) -> Any:
    """Parses the text of a client's file into a document to edit. `form` is json or toml. In JSON, comments
    and trailing commas are skipped. None counts as an empty file. Raises `ValueError`.
    """
    if form == "toml":
        try:
            return tomlkit.parse(text or "")
        except TOMLKitError as error:
            raise ValueError(str(error)) from error
    bare = _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text or "")
    bare = _STRING_OR_COMMA.sub(lambda match: match[1] or "", bare)
    try:
        document = json.loads(bare, object_pairs_hook=_unique) if bare.strip() else {}
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def written(form: str, document: Any, before: str | None) -> str:
    """Serializes a parsed JSON or TOML `document`. JSON keeps the indent of `before`, the file's old text
    (default: 2 spaces).
    """
    if form == "toml":
        return tomlkit.dumps(document)
    indent = re.search(r'^([ \t]+)"', before or "", re.MULTILINE)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def comment_note(form: str, path: str, before: str | None) -> list[str]:
    """A note if rewriting the JSON file `before` loses comments; else empty."""
    if form == "json" and any(not match[1] for match in _STRING_OR_COMMENT.finditer(before or "")):
        return [f"Note: the comments in {path} were removed; {os.path.basename(path)}.bak still has them"]
    return []
