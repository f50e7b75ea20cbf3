"""The ledger: a task as a pure machine, with its queue and its references."""
