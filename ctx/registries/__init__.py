"""Registries: folders of Lua tools, connectors and agents in git, pinned to a commit and held to their hashes."""
