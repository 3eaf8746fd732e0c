"""A pack's scripts: their text with what they share, and those that answer a route or a method instead of
being a tool.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from ctx.extensions.parameters import parameters_schema
from ctx.extensions.scripts import Runner, ScriptFile
from ctx.packs.manifest import Manifest
from ctx.tools.arguments import from_text, refuse_unknown, without_absent
from ctx.tools.schema import Check, compile_check
from ctx.types import JSON


class OwnScript(NamedTuple):
    """A script of a route or a method, as it runs: its text, what it takes, and the shape of what it
    answers.
    """

    source: bytes
    parameters: JSON
    check: Check
    output: JSON

    def arguments(self, texts: Mapping[str, list[str]], body: dict[str, JSON]) -> dict[str, JSON]:
        """What it is called with: the path and the query string as its parameters' types, and the body.

        Raises `BadRequest`: nothing that it does not know is dropped.
        """
        arguments = without_absent(self.parameters, {**body, **from_text(self.parameters, texts)})
        refuse_unknown(self.parameters, arguments)
        return self.check(arguments)


def read_own(script: ScriptFile, source: bytes, runner: Runner) -> OwnScript:
    """A script that is no tool of the pack's, by what it declares. Raises a `CtxError`."""
    metadata = runner.metadata(script, source, "tool")
    parameters = parameters_schema(metadata.get("parameters"), script.where)
    output = metadata.get("output")
    return OwnScript(
        source, parameters, compile_check(parameters), output if isinstance(output, dict) else None
    )


def pack_script(manifest: Manifest, name: str, path: str, timeout_s: float = 30.0) -> ScriptFile:
    """A script of the pack, as messages call it."""
    return ScriptFile(name, path, timeout_s=timeout_s, shown=f"{manifest.name}/{os.path.basename(path)}")


def shared_text(manifest: Manifest) -> bytes:
    """What stands before each script of the pack: the script they share, whose value they see as `shared`.

    It is one line, so that the lines of the script that follows keep their numbers. Raises `ToolError`.
    """
    if manifest.shared is None:
        return b""
    script = pack_script(manifest, "shared", manifest.shared)
    return b'local shared = assert(load("%s", "=%s"))(); ' % (_quoted(script.source()), script.where.encode())


def _quoted(source: bytes) -> bytes:
    """The inside of a Lua string: on one line, whatever it holds."""
    return b"".join(
        bytes((byte,)) if 32 <= byte < 127 and byte not in b'"\\' else b"\\%03d" % byte for byte in source
    )
