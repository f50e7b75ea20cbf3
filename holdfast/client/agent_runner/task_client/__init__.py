"""One task from a client's side: the requests and commands that are sent to it, and its end."""
