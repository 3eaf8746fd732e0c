"""The built-in tools, and the Toolbox by which REST, MCP, CLI and Lua call tools and agents.

May import `models`, `search`, `store`, `code` and `text`.
"""
