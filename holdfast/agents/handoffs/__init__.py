"""Handoffs: declarations, input filters, and their invocation by the model."""
