"""onnxruntime, told to keep to itself."""

import os
from typing import Any


def load_onnxruntime() -> Any:
    """The library, 0.13 s at the first call."""
    # From 1.29 on it reports every session to its maker and writes a device id to the home folder, unless
    # this is set before it is imported. `disable_telemetry_events` alone comes too late for that; it is what
    # Windows heeds.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
