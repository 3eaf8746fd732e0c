"""ctx: a local-first context server. In a Python program, `ctx.open(folder)` opens a project
(docs/python.md).
"""

__version__ = "0.1.0"

# Public name -> (module, name in this module). Each name is imported at first use, because the command line
# imports this module and does not need these names.
_API = {
    "open": ("ctx.api", "open_project"),
    "Project": ("ctx.api", "Project"),
    "CtxError": ("ctx.errors", "CtxError"),
}
__all__ = ["CtxError", "Project", "__version__", "open"]


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'ctx' has no attribute '{name}'")
    module, original = _API[name]
    value: object = getattr(__import__(module, fromlist=[original]), original)
    globals()[name] = value
    return value
