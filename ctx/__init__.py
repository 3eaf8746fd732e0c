"""ctx: a local-first context server."""

__version__ = "0.1.0"
