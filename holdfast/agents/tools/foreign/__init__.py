"""Tools and agents of other frameworks, taken as tools."""
