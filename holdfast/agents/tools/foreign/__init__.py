"""Tools and agents from elsewhere, taken as tools: other frameworks, and MCP servers."""
