"""The embedded Temporal server: its process, data directory and leases."""
