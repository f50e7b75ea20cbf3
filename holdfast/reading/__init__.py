"""Reading tasks from outside: queries, records, results, lists and streams."""
