"""The APIs of other providers, as the fake API reads and writes them."""
