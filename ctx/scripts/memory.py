"""What `context.memory` and `context.bank` of a script do: the operations of the memory bank that the
operator gave it.
"""

from collections.abc import Callable

from ctx.errors import BadRequest
from ctx.memory import OPS, BankCall, MemoryStore, Provenance, check_nameable
from ctx.models import JSON, Caller
from ctx.refusals import Unauthorized


def open_bank(store: Callable[[], MemoryStore], bank: str, script: str, caller: Caller) -> BankCall:
    """The bank of a script for one call. Raises `Unauthorized` where the caller's key does not open it."""
    if caller.banks is not None and check_nameable(bank) not in caller.banks:
        raise Unauthorized(f"{script}: this key does not open the bank '{bank}'", presented=True)
    source = Provenance(None, None, caller.door, caller.principal, script)
    return BankCall(store().bank(check_nameable(bank), source))


def answer(bank: BankCall, operation: str, arguments: JSON) -> JSON:
    """What the bank answers to `memory.NAME` or `bank.NAME`. Raises `BadRequest`."""
    name = operation.partition(".")[2]
    return bank.run(name, _by_name(name, arguments if isinstance(arguments, list) else []))


def _by_name(name: str, values: list[JSON]) -> JSON:
    """Lua's positional arguments by name: the required ones come first, a table of options last."""
    if name not in OPS:
        return {}  # `run` says that it is unknown
    required = OPS[name].required
    if len(values) == 1 and isinstance(values[0], dict) and (not required or required[0] in values[0]):
        return values[0]
    options = values[len(required) :] or [None]
    if len(options) > 1 or not isinstance(options[0], dict | None):
        raise BadRequest(f"memory.{name}: takes {', '.join(required) or 'nothing'} and a table of options")
    return dict(zip(required, values, strict=False)) | (options[0] or {})
