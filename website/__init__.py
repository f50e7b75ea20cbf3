"""Builds the documentation's site: `make docs`."""
