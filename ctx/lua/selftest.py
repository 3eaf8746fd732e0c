"""Which layers of the sandbox hold on this machine: tried, not assumed.

Workers are forked that try what a hostile script would try, and the way they die is looked at.
"""

import os
import signal
import time

from ctx.lua.lockdown import Layer
from ctx.lua.nursery import Nursery, Worker

FILTER, MEMORY, KILL = "system call filter", "memory limit", "kill"
STRICT = (FILTER, MEMORY, KILL)  # the level that scripts nobody vouches for need

# By number as in zygote.PROBES (which cannot be imported here: it imports lupa); a test holds the two lists
# equal.
FORBIDDEN = (
    "open a file",
    "open a socket",
    "start a process",
    "run a program",
    "send a signal",
    "make memory executable",
)
_MEMORY_PROBE, _SPIN_PROBE = len(FORBIDDEN), len(FORBIDDEN) + 1
_REFUSED = 77  # zygote.REFUSED
_PATIENCE_S = 5.0  # for one probe on a loaded machine; a few milliseconds otherwise


def try_layers(nursery: Nursery) -> list[Layer]:
    """The zygote's own layers and those that only a worker can prove. Raises `ToolError` when no worker
    starts.
    """
    layers = [layer for layer in nursery.layers if layer.name != FILTER]
    return [_filter(nursery), _memory(nursery), _kill(nursery), *layers]


def is_strict(layers: list[Layer]) -> bool:
    return all(any(layer.name == name and layer.held for layer in layers) for name in STRICT)


def _filter(nursery: Nursery) -> Layer:
    workers = [nursery.probe(number) for number in range(len(FORBIDDEN))]
    passed = [
        deed
        for deed, worker in zip(FORBIDDEN, workers, strict=True)
        if not _killed_by(_end(nursery, worker), signal.SIGSYS)
    ]
    if passed:
        return Layer(
            FILTER, False, f"a worker that tries these is not stopped by the kernel: {', '.join(passed)}"
        )
    return Layer(FILTER, True, f"killed by SIGSYS when trying to {', '.join(FORBIDDEN)}")


def _memory(nursery: Nursery) -> Layer:
    status = _end(nursery, nursery.probe(_MEMORY_PROBE))
    refused = status is not None and os.WIFEXITED(status) and os.WEXITSTATUS(status) == _REFUSED
    return Layer(
        MEMORY,
        refused,
        "an allocation over the cap is refused" if refused else "the system does not enforce it",
    )


def _kill(nursery: Nursery) -> Layer:
    worker = nursery.probe(_SPIN_PROBE)
    began_s = time.perf_counter()
    nursery.kill(worker)
    means = "the zygote" if worker.pidfd is None else "a pidfd"
    killed = _killed_by(_end(nursery, worker), signal.SIGKILL)
    return Layer(
        KILL,
        killed,
        f"by {means} in {(time.perf_counter() - began_s) * 1000:.1f} ms"
        if killed
        else "a looping worker stayed alive",
    )


def _end(nursery: Nursery, worker: Worker) -> int | None:
    worker.ended.wait(_PATIENCE_S)
    if not worker.ended.is_set():
        nursery.kill(worker)
    nursery.drop(worker)
    return worker.status


def _killed_by(status: int | None, number: signal.Signals) -> bool:
    return status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
