"""Checks of requests, as the real API makes them."""
