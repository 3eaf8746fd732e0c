"""ctx: a local-first context server. `ctx.open(folder)` opens a project in a program (docs/python.md)."""

__version__ = "0.1.0"

# name -> (module, name there). Fetched when first asked for: the command line imports this module and needs
# none of them.
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
