"""The doors of the network: REST, MCP, the page."""
