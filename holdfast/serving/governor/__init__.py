"""The limits of model providers, kept by all worker processes together.

One workflow for each provider and key, `Governor`, leases shares of the provider's time to worker
processes for a few seconds each. In a process, calls wait for their turn by priority and tenant.
Another one counts what tenants with a budget have used in their day. A process without providers
and budgets enters nothing of this.
"""

from holdfast.serving.governor.providers import Provider, TenantBudget

__all__ = ["Provider", "TenantBudget"]
