"""The built-in tools, and the Toolbox with which REST, MCP, CLI and Lua call tools and agents.

May import `models`, `search`, `store`, `code` and `text`.
"""
