"""Agents that other agents call as tools, and the runs that such calls are."""
