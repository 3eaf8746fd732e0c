"""Files that belong to other programs: read, replaced with the old text beside them as `.bak`, shown as a
diff."""

import os
import shutil
import stat
import sys
from typing import NamedTuple

from ctx import files
from ctx.errors import ConfigError
from ctx.types import JSON


class Outcome(NamedTuple):
    """What became of another program's file.

    `state`: written, unchanged, removed, shown (a dry run, or an entry that was asked for), by hand (its file
    is not ours to edit) or failed. `text` is for standard output: what was done, or the change or entry that
    is shown. `notes` are for standard error; `preface` is one that stands above the text.
    """

    client: str
    state: str
    file: str | None
    text: str
    notes: tuple[str, ...] = ()
    preface: str | None = None
    code: int = 0

    def show(self) -> None:
        """Prints it for a person."""
        if self.preface is not None:
            print(f"{self.preface}\n", file=sys.stderr)
        print(self.text.rstrip())
        for note in self.notes:
            print(note, file=sys.stderr)

    def row(self) -> dict[str, JSON]:
        """The same for a program."""
        notes = [note for note in (self.preface, *self.notes) if note is not None]
        return {
            "client": self.client,
            "state": self.state,
            "file": self.file,
            "text": self.text.rstrip(),
            "notes": notes,
        }


def own_command() -> str:
    """How another program starts `ctx`."""
    # Programs with windows do not see a shell's PATH.
    beside = os.path.join(os.path.dirname(sys.executable), "ctx")
    return beside if os.path.exists(beside) else shutil.which("ctx") or "ctx"


def file_at(path: str, *, shared: bool) -> str:
    """The file itself that a client reads at `path`. Raises `ConfigError`.

    A user's own may be a link, to a folder of dotfiles say, which stays one. That of a project (`shared`) may
    not: a clone brings its links along, and what one leads to may be any file of the user's.
    """
    if not shared:
        return os.path.realpath(path)
    path = os.path.abspath(path)
    try:
        files.check_file(path, beneath=os.getcwd())
    except FileNotFoundError:
        pass  # nor a folder for it
    except OSError as error:
        raise ConfigError(f"{path} is not written: {error.strerror}") from error
    return path


def read_text(path: str) -> str | None:
    """The text of a file, its line ends as they are; None where there is no file. Raises `ConfigError`."""
    try:
        # Not waited for: a pipe in its place would never be read.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8", newline="") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} cannot be read: it is no file")
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}") from error


def write_text(path: str, text: str, *, before: str | None, private: bool) -> None:
    """Replaces the file in one step, its old text beside it as `.bak`; permissions stay as they were.

    `before` is what it was changed from, None where there was none. Raises `ConfigError`, also where the
    program that it belongs to has written it meanwhile: what that wrote is not to be lost.
    """
    folder = os.path.dirname(path)
    try:
        if private:
            files.make_folder(folder)
        else:
            os.makedirs(folder, exist_ok=True)
        mode = 0o600 if private else 0o644
        if read_text(path) != before:
            raise ConfigError(f"{path} was changed meanwhile, and is as it was: run this again")
        if before is not None:
            mode = os.stat(path).st_mode & 0o777
            if not mode & 0o222:
                raise ConfigError(f"{path} is write-protected, so it was left alone: `chmod u+w` it first")
            files.replace(path + ".bak", before.encode(), mode=mode)
        files.replace(path, text.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def give_back(
    path: str, old: str, revised: str, backup: str | None, *, private: bool, dry_run: bool
) -> str | None:
    """Leaves the file as it is without our part; the change as a diff, and nothing done, where it is a dry
    run.

    The file is gone where our part was all of it, and without its `.bak` where it is that again.
    """
    if dry_run:
        return difference(path, old, revised)
    if revised or revised == backup:
        write_text(path, revised, before=old, private=private)
    else:
        os.unlink(path)
    if revised == backup:
        os.unlink(f"{path}.bak")
    return None


def difference(path: str, old: str, new: str) -> str:
    """A change as a unified diff."""
    import difflib  # 5 ms, for --dry-run alone

    return "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), path, f"{path} (new)"
        )
    )
