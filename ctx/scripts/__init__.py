"""Lua tools, connectors and agents: load, run, trust and share them.

May import `lua`, `tools`, `connectors`.
"""
