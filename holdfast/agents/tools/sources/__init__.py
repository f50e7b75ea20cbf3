"""Tools that come from elsewhere: of other frameworks, and of servers."""
