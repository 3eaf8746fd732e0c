"""Lua tools, connectors and agents: loads and runs scripts, checks that they are trusted, and installs
registries.

May import `lua`, `tools`, `connectors`.
"""
