"""Model calls at half the price: collected, and answered within a day by a batch API.

One workflow for each account and model, `Batches`, has the calls of all tasks. A process without a
`BatchModel` enters nothing of this.
"""

from holdfast.serving.batches.model import BatchModel

__all__ = ["BatchModel"]
