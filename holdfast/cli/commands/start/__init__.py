"""`init`, `doctor` and what reloads `dev`: how one begins, and finds out what is missing."""
