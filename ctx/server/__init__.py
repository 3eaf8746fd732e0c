"""The network interfaces: REST, MCP and the web page."""
