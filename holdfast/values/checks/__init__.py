"""Checks of data and arguments that come from outside: shapes, ids, sizes, the gate."""
