"""Run the user's `git`, without a shell and without prompts.

Every call has a deadline and ends with all its child processes.
"""

import os
import re
import selectors
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from ctx import files
from ctx.connectors.base import Progress
from ctx.connectors.copies import REMOTE
from ctx.connectors.forges import Remote
from ctx.errors import SourceError

OLDEST_GIT = (2, 31)  # the first version that reads configuration from the environment
QUICK_TIMEOUT_S = 60.0  # deadline of calls that read only our clone, or list a remote's branches
CHUNK_BYTES = 1 << 16
MAX_PROCESSES = 64  # processes that one call of git may start; usually there are at most ten
LOOK_S = 0.2  # seconds between two checks of git's output, its processes and the disk
LEAST_ROOM_BYTES = 64 << 20  # bytes to leave free on the disk, so that an endless fetch cannot fill it
# The limit for the output of one call: enough to list two million files. A malicious repository that takes a
# kilobyte to fetch can list ten thousand million: ten trees that each contain the next one ten times.
MAX_OUTPUT_BYTES = 128 << 20
# The largest allocation that git may make. A pack of four kilobytes can expand to a file of four gigabytes (a
# delta that repeats). The limit is enough for lists of ten million objects, and is twice what git needs for
# the largest files that git itself stores as deltas.
ALLOC_LIMIT = "2g"
# Bytes of git's standard error to keep from its start (a trace) and from its end (the error).
MAX_STDERR_BYTES = 1 << 16

# Removed from the environment: variables of a git process that started us (a hook, an alias). They would
# select its repository or override our settings, such as `-c` settings (GIT_CONFIG_PARAMETERS).
# GIT_CONFIG_COUNT stays, because containers pass their user's settings in it; ours come after them.
_FOREIGN = (
    "GIT_(DIR|COMMON_DIR|WORK_TREE|IMPLICIT_WORK_TREE|INDEX_FILE|PREFIX|NAMESPACE|INTERNAL_SUPER_PREFIX"
    "|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|QUARANTINE_PATH|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE"
    "|CONFIG|CONFIG_PARAMETERS|ATTR_SOURCE|NO_LAZY_FETCH|LFS_[A-Z_]+|PAGER|EXTERNAL_DIFF|[A-Z]+_PATHSPECS"
    "|CURL_VERBOSE"
    "|TRACE.*)"
)
_PROGRESS = re.compile(rb"(?:remote: )?([A-Z][A-Za-z ]+): +\d+% \((\d+)/(\d+)\)")


# A configuration that came with a project may choose the host, so the host must not get access to the user's
# keys, screen or ports. (Many `~/.ssh/config` have `ForwardAgent` for all hosts.)
_SSH = (
    "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"
    " -oForwardAgent=no -oForwardX11=no -oClearAllForwardings=yes"
)


class GitFailed(Exception):
    """git failed. `words` is its message, without credentials and paths of this machine."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(eq=False, repr=False)
class Git:
    """Runs git in one of our bare repositories, which fetches from one remote.

    The address is passed in the environment: other users can read command lines, and in the repository's
    configuration its password would be stored on disk.
    """

    repository: str
    remote: Remote
    name: str

    def environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not re.fullmatch(_FOREIGN, key)}
        env |= {
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",  # answers every prompt with an empty line
            "SSH_ASKPASS": "true",
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ALLOC_LIMIT": env.get("GIT_ALLOC_LIMIT") or ALLOC_LIMIT,
            "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        }
        ssh = env.get("GIT_SSH_COMMAND") or env.get("GIT_SSH")
        if self.remote.transport == "ssh" and not ssh and not self._ssh_configured(env):
            env["GIT_SSH_COMMAND"] = _SSH
        settings = {
            f"remote.{REMOTE}.url": self.remote.url,
            "core.hooksPath": os.devnull,
            "core.fsmonitor": "false",
            "protocol.version": "2",
            "gc.auto": "0",  # `Repository` combines the packs, under its lock
            "maintenance.auto": "false",
            "http.lowSpeedLimit": "1",  # bytes a second; so low that only dead connections end, not slow ones
            "http.lowSpeedTime": "60",
            "log.showSignature": "false",
        }
        if self.remote.transport in ("local", "file"):
            settings[f"remote.{REMOTE}.uploadpack"] = _upload_pack(self.remote.path)
        count = env.get("GIT_CONFIG_COUNT") or "0"
        start = int(count) if re.fullmatch("[0-9]{1,6}", count) else 0
        for number, (key, value) in enumerate(settings.items(), start=start):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return env | {"GIT_CONFIG_COUNT": str(start + len(settings))}

    def _ssh_configured(self, env: dict[str, str]) -> bool:
        command = subprocess.run(
            ["git", "config", "--get", "core.sshCommand"],
            env=env,
            capture_output=True,
            timeout=QUICK_TIMEOUT_S,
            check=False,
            cwd="/",
        )
        return command.returncode == 0

    def check_version(self) -> None:
        """Raises `SourceError` if git is missing or too old."""
        version = self.run(["--version"], timeout_s=QUICK_TIMEOUT_S).decode("utf-8", "replace")
        match = re.search(r"(\d+)\.(\d+)", version)
        if match and (int(match[1]), int(match[2])) < OLDEST_GIT:
            oldest = ".".join(map(str, OLDEST_GIT))
            raise SourceError(f"{self.name}: git {match[0]} is too old. Install {oldest} or newer")

    def run(
        self,
        arguments: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes | None = None,
        trace: bool = False,
        keep_fds: Sequence[int] = (),
        progress: Progress | None = None,
    ) -> bytes:
        """Run git and return its output. `trace` adds the exchanged packets (they hold no credentials).

        Raises `GitFailed`, `SourceError`.
        """
        # With files, git never waits for us, and a daemon that it leaves cannot keep a pipe open.
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            source.write(stdin or b"")
            source.seek(0)
            deadline_s = time.monotonic() + timeout_s
            with self.started(arguments, source, out, err, trace=trace, keep_fds=keep_fds) as process:
                while process.returncode is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.0, min(LOOK_S, deadline_s - time.monotonic())))
                    out_bytes, err_bytes = (os.fstat(file.fileno()).st_size for file in (out, err))
                    self._check(process, arguments[0], max(out_bytes, err_bytes))
                    if process.returncode is None and time.monotonic() >= deadline_s:
                        late = f"did not finish in {timeout_s:g} s and was stopped"
                        raise SourceError(f"{self.name}: git {arguments[0]} {late}")
                    if progress:
                        recent = os.pread(err.fileno(), CHUNK_BYTES, max(0, err_bytes - CHUNK_BYTES))
                        for phase, count, total in _PROGRESS.findall(recent)[-1:]:
                            progress(f"{self.name}: {phase.decode().lower()}", int(count), int(total))
            for file in (out, err):  # git wrote through the same open file, so it is at the end
                file.seek(0)
            words = err.read(MAX_STDERR_BYTES)
            if (size := os.fstat(err.fileno()).st_size) > MAX_STDERR_BYTES:
                err.seek(max(MAX_STDERR_BYTES, size - MAX_STDERR_BYTES))
                words += b"\n" + err.read(MAX_STDERR_BYTES)
            if process.returncode != 0:
                raise GitFailed(self._said(words))
            output = out.read()
            return output + b"\n" + words if trace else output

    @contextmanager
    def started(
        self,
        arguments: Sequence[str],
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        stdout: IO[bytes] | int = subprocess.PIPE,
        stderr: IO[bytes] | int = subprocess.DEVNULL,
        *,
        trace: bool = False,
        keep_fds: Sequence[int] = (),
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run git during the block, then kill it with all its child processes."""
        env = self.environment()
        if trace:
            env["GIT_TRACE_PACKET"] = "1"
        try:
            process = subprocess.Popen(
                ["git", "--git-dir", self.repository, *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd="/",
                # Makes a process group, which can be killed as a whole and has no terminal for prompts.
                start_new_session=True,
                pass_fds=tuple(keep_fds),
                bufsize=0,
            )
        except FileNotFoundError as error:
            raise SourceError(f"{self.name}: git is not installed or not on PATH") from error
        except OSError as error:
            raise SourceError(f"{self.name}: git cannot be started: {error.strerror}") from error
        try:
            yield process
        finally:
            kill(process)

    def _check(self, process: "subprocess.Popen[bytes]", verb: str, output_bytes: int) -> None:
        """Raises `SourceError` if git writes too much, if the disk is almost full, or if git starts itself
        again and again to fetch missing objects, which a shallow remote may never send.
        """
        if output_bytes > MAX_OUTPUT_BYTES:
            reason = (
                f"after {MAX_OUTPUT_BYTES >> 20} MiB of output: the repository has too many files. "
                "Set `root` to one of its folders"
            )
        elif process.returncode is not None:
            return
        elif _running(process.pid) > MAX_PROCESSES:
            reason = (
                f"because it started more than {MAX_PROCESSES} processes to fetch missing objects. "
                "The remote may be a shallow clone. Try `shallow = false`"
            )
        elif os.path.exists(self.repository) and files.free_bytes(self.repository) < LEAST_ROOM_BYTES:
            folder = os.path.dirname(self.repository)
            reason = f"because the disk of {folder} has less than {LEAST_ROOM_BYTES >> 20} MiB left"
        else:
            return
        raise SourceError(f"{self.name}: git {verb} was stopped {reason}")

    def _said(self, err: bytes) -> str:
        """Why git failed: the last fatal and error lines, or the last line."""
        text = self.remote.redact(err.decode("utf-8", "replace"))
        for address, name in ((self.repository, "the local copy"), (self.remote.url, self.remote.display)):
            text = text.replace(address, name)
        lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
        reasons = [
            line
            for line in lines
            if re.match(
                r"(remote: )?(fatal|error|ERROR|Permission denied|ssh:|Host key)", line, re.IGNORECASE
            )
        ]
        return "; ".join(dict.fromkeys(reasons[-3:] or lines[-1:])) or "git printed no reason"


def _upload_pack(path: str) -> str:
    """The `upload-pack` command for a repository of this machine, to which our settings do not apply.

    The operator named its path, so it may belong to another user, and it may be a partial clone. But it must
    not run programs or fetch anything for us.
    """
    settings = [
        f"safe.directory={path}",
        f"safe.directory={path.rstrip('/')}/.git",
        "uploadpack.allowFilter=true",
        f"core.hooksPath={os.devnull}",
        "core.fsmonitor=false",
        "core.alternateRefsCommand=true",
    ]
    options = " ".join(f"-c {shlex.quote(setting)}" for setting in settings)
    # GIT_ALLOC_LIMIT=0: only the fetching git checks the limit, because it gives a useful message.
    return f"GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_ALLOC_LIMIT=0 git {options} upload-pack"


def _running(group: int) -> int:
    """The number of processes in a group; 0 without `/proc`."""
    count = 0
    for number in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError):  # the process has ended
            count += os.getpgid(int(number)) == group
    return count


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and its children, and close its pipes."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # the process has just ended
            os.killpg(process.pid, signal.SIGKILL)
    for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
        with suppress(OSError):  # unwritten data is discarded
            stream.close()
    process.wait()


@dataclass(eq=False, repr=False)
class Blobs:
    """Reads objects by id through one `git cat-file` process. Thread-safe."""

    git: Git
    name: str

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ExitStack()
        self._buffer = bytearray()
        self._closed = False

    def read(self, oid: str, timeout_s: float, most: int | None = None) -> bytes:
        """The content of a blob. Raises `SourceError`, also if it has more than `most` bytes.

        After `close`, each call starts a process of its own.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            reusable = False
            try:
                size = self._request(oid, deadline_s)
                if most is not None and size > most:
                    raise SourceError(f"is larger than {most:,} bytes")
                while len(self._buffer) <= size:
                    self._receive(deadline_s)
                data = bytes(self._buffer[:size])
                del self._buffer[: size + 1]
                reusable = not self._closed
                return data
            finally:
                if not reusable:  # its remaining output would be taken for the next answer
                    self._stop()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._stop()

    def _stop(self) -> None:
        self._running.close()
        self._process = None
        self._buffer.clear()

    def _request(self, oid: str, deadline_s: float) -> int:
        """Request a blob and return its size."""
        if self._process is None:
            batch = self.git.started(["cat-file", "--batch"], stdin=subprocess.PIPE)
            self._process = self._running.enter_context(batch)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{oid}\n".encode())
        except OSError as error:
            raise SourceError(f"{self.name}: git cat-file ended: {error.strerror}") from error
        while b"\n" not in self._buffer:
            self._receive(deadline_s)
        header, _, self._buffer = self._buffer.partition(b"\n")
        fields = header.split()
        if len(fields) != 3:
            raise SourceError("is missing from the local copy of the repository")
        return int(fields[2])

    def _receive(self, deadline_s: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        with selectors.PollSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline_s - time.monotonic())):
                raise SourceError("was not read from git in time")
        data = os.read(fd, CHUNK_BYTES)
        if not data:
            raise SourceError("could not be read: git cat-file ended")
        self._buffer += data
