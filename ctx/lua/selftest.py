"""Test which layers of the sandbox hold on this machine.

Workers try what a hostile script would try, and their exit status shows whether the kernel stopped them.
"""

import os
import signal
import time

from ctx.lua.lockdown import Layer
from ctx.lua.processes import Worker, WorkerProcesses

FILTER, MEMORY, KILL = "system call filter", "memory limit", "kill"
STRICT = (FILTER, MEMORY, KILL)  # what untrusted scripts need

# The first of `zygote.PROBES`, in the same order. The server cannot import that module: it imports lupa.
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
_PROBE_TIMEOUT_S = 5.0  # for a loaded machine; usually a few milliseconds


def try_layers(processes: WorkerProcesses) -> list[Layer]:
    """The zygote's own layers, and those tested in workers. Raises `ToolError` if no worker starts."""
    layers = [layer for layer in processes.layers if layer.name != FILTER]
    return [_filter(processes), _memory(processes), _kill(processes), *layers]


def is_strict(layers: list[Layer]) -> bool:
    return all(any(layer.name == name and layer.held for layer in layers) for name in STRICT)


def _filter(processes: WorkerProcesses) -> Layer:
    workers = [processes.probe(number) for number in range(len(FORBIDDEN))]
    allowed = [
        action
        for action, worker in zip(FORBIDDEN, workers, strict=True)
        if not _killed_by(_end(processes, worker), signal.SIGSYS)
    ]
    if allowed:
        return Layer(FILTER, False, f"the kernel does not stop a worker that tries to {', '.join(allowed)}")
    return Layer(FILTER, True, f"killed by SIGSYS when trying to {', '.join(FORBIDDEN)}")


def _memory(processes: WorkerProcesses) -> Layer:
    status = _end(processes, processes.probe(_MEMORY_PROBE))
    refused = status is not None and os.WIFEXITED(status) and os.WEXITSTATUS(status) == _REFUSED
    return Layer(
        MEMORY,
        refused,
        "an allocation over the limit is refused" if refused else "the system does not enforce it",
    )


def _kill(processes: WorkerProcesses) -> Layer:
    worker = processes.probe(_SPIN_PROBE)
    began_s = time.perf_counter()
    processes.kill(worker)
    means = "the zygote" if worker.pidfd is None else "a pidfd"
    if not _killed_by(_end(processes, worker), signal.SIGKILL):
        return Layer(KILL, False, "a looping worker stayed alive")
    return Layer(KILL, True, f"by {means} in {(time.perf_counter() - began_s) * 1000:.1f} ms")


def _end(processes: WorkerProcesses, worker: Worker) -> int | None:
    worker.ended.wait(_PROBE_TIMEOUT_S)
    if not worker.ended.is_set():
        processes.kill(worker)
    processes.drop(worker)
    return worker.status


def _killed_by(status: int | None, number: signal.Signals) -> bool:
    return status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
