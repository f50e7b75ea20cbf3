"""What must be there."""

from typing import TypeVar

T = TypeVar("T")


def there(value: T | None) -> T:
    """Return a value that must not be None."""
    assert value is not None
    return value
