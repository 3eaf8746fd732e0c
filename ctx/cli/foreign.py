"""Files that belong to other programs: read, replaced with the old text beside them as `.bak`, shown as a
diff."""

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ctx import file_writing, files
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
        if self.text or self.preface:
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


def file_at(path: str, *, shared: bool, root: str | None = None) -> str:
    """The file itself that a client reads at `path`. Raises `ConfigError`.

    A user's own may be a link, to a folder of dotfiles say, which stays one. That of a project (`shared`) may
    not: a clone brings its links along, and what one leads to may be any file of the user's. `root` is the
    project's folder, else the working one.
    """
    if not shared:
        return os.path.realpath(path)
    path = os.path.abspath(path)
    try:
        files.check_file(path, beneath=root or os.getcwd())
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
    with file_writing.writing(path, ConfigError):
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
            file_writing.replace(path + ".bak", before.encode(), mode=mode)
        file_writing.replace(path, text.encode(), mode=mode)


class Change(NamedTuple):
    """What is to become of a client's file. `before` is None where there was none; `private`: it is the
    user's own, not a project's. A dry run shows it and does nothing.
    """

    client: str
    path: str
    before: str | None
    revised: str
    private: bool
    dry_run: bool

    def write(self, headline: str, lines: Sequence[str], notes: tuple[str, ...] = ()) -> Outcome:
        """Puts our part in. The `headline` ends with the file's name: where its old text is, is added."""
        if self.dry_run:
            return self._shown()
        write_text(self.path, self.revised, before=self.before, private=self.private)
        beside = "" if self.before is None else f" (the old file: {os.path.basename(self.path)}.bak)"
        text = "\n".join([headline + beside, *lines])
        return Outcome(self.client, "written", self.path, text, notes)

    def give_back(self, backup: str | None, headline: str) -> Outcome:
        """Takes our part out: the file is gone where that was all of it, and without its `.bak` where it is
        that again.
        """
        if self.dry_run:
            return self._shown()
        if self.revised or self.revised == backup:
            write_text(self.path, self.revised, before=self.before, private=self.private)
        else:
            os.unlink(self.path)
        if self.revised == backup:
            os.unlink(f"{self.path}.bak")
        return Outcome(self.client, "removed", self.path, headline)

    def _shown(self) -> Outcome:
        return Outcome(
            self.client, "shown", self.path, difference(self.path, self.before or "", self.revised)
        )


def difference(path: str, old: str, new: str) -> str:
    """A change as a unified diff."""
    import difflib  # 5 ms, for --dry-run alone

    return "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), path, f"{path} (new)"
        )
    )
