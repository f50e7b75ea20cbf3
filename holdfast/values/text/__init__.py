"""Texts that leave the process: logs, terminals, error messages, and what is redacted in them."""
