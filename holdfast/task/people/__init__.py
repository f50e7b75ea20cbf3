"""What waits for people: approvals, who may decide them, decisions for later calls."""
