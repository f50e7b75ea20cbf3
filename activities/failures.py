"""How errors of activities cross into the task: by class name, retried or not."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.errors import (
    ArchiveError,
    BlobMissingError,
    DigestMismatchError,
    ModelUnavailableError,
)
from holdfast.redact import redact

LONGEST_TEXT = 2000


@contextmanager
def typed_failures() -> Generator[None]:
    """Turn every exception into one that the task understands.

    What time can heal is retried, with the provider's Retry-After obeyed. An archive that cannot be
    reached is retried too; damage in it is not. Everything else waits for a person.
    """
    try:
        yield
    except ApplicationError:
        raise
    except ModelUnavailableError as error:
        delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
        raise ApplicationError(
            _text(error),
            type=type(error).__name__,
            next_retry_delay=delay,
            category=ApplicationErrorCategory.BENIGN,
        ) from error
    except Exception as error:
        heals = isinstance(error, ArchiveError) and not isinstance(
            error, BlobMissingError | DigestMismatchError
        )
        raise ApplicationError(
            _text(error), type=type(error).__name__, non_retryable=not heals
        ) from error


def _text(error: Exception) -> str:
    return redact(str(error))[:LONGEST_TEXT]
