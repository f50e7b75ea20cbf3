"""Secrets are cut out of texts, and ordinary texts stay as they are."""

import traceback
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.archive.archive import Archive
from holdfast.errors import ArchiveError
from holdfast.reading.visibility import memo
from holdfast.values.checks.gate import LONGEST_KEPT, safe_text
from holdfast.values.text.redact import (
    LONGEST_READ,
    REDACTED,
    redact,
    redact_long,
    without_credentials,
)
from tests.support.tables import table

SHAPES, IN_WORDS, ORDINARY = map(table, ("credentials", "credentials_in_words", "no_credentials"))


@pytest.mark.parametrize("secret", SHAPES)
def test_what_has_the_shape_of_a_credential_is_cut_out(secret: str) -> None:
    assert redact(f"it said {secret}, and ended") == f"it said {REDACTED}, and ended"


@pytest.mark.parametrize(("text", "secret"), IN_WORDS)
def test_a_credential_in_a_url_or_behind_its_name_is_cut_out(text: str, secret: str) -> None:
    found = redact(text)
    assert secret not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DATABASE_URL", "postgresql://app:hunter22@db/x", "hunter22"),
        ("DATABASE_URL", "postgresql://app:hunter%2F22@db/x", "hunter/22"),
        ("GITHUB_PAT", "plainlooking", "plainlooking"),
        ("SERVICE_KEYS", "firstvalue,secondvalue", "secondvalue"),
        ("REFRESH_TOKENS", "plainlooking", "plainlooking"),
        ("AWS_SECRET_ACCESS_KEY", "plainlooking", "plainlooking"),
        ("DB_PASSWD", "plainlooking", "plainlooking"),
        ("GOOGLE_CREDENTIALS", "plainlooking", "plainlooking"),
        ("API_KEY_2", "plainlooking", "plainlooking"),
    ],
)
def test_the_environment_names_secrets(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"refused: {said!r}") == f"refused: {REDACTED!r}"


def test_the_environment_has_much_that_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "OLDPWD", "SSH_AUTH_SOCK", "KEYBOARD", "SERVICE_URL", "TOKENIZERS"):
        monkeypatch.setenv(name, "https://host.example/some/place")
    text = "at https://host.example/some/place"
    assert redact(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_sentences_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


WORDS = st.text(st.characters(categories=("Ll", "Lu", "Zs", "Po", "Nd"), codec="utf-8"))


@settings(max_examples=30)
@given(WORDS, st.sampled_from(SHAPES), WORDS)
def test_a_credential_is_cut_out_wherever_it_stands(before: str, secret: str, after: str) -> None:
    found = redact(f"{before} {secret} {after}")
    assert secret not in found
    assert redact(found) == found


@pytest.mark.parametrize(
    "unit",
    [
        "-",
        "_",
        "\u6f22",
        "key-",
        "ab-",
        "a.",
        "sk-",
        "eyJ-",
        "token=",
        "token=abcdefgh[",
        "curl -u",
        "://0a",
    ],
)
def test_a_long_text_without_spaces_is_searched_once(unit: str) -> None:
    """Searched anew from each of its places, it takes longer than a test may."""
    long = unit * (60_000 // len(unit))
    assert redact(f"{long}; password=abc12345") == f"{long}; password={REDACTED}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://id:secret@bucket/x", f"s3://{REDACTED}@bucket/x"),
        ("filecache::s3://token@bucket/x", f"filecache::s3://{REDACTED}@bucket/x"),
        ("https://host/x?sig=a&se=b", f"https://host/x?sig={REDACTED}&se={REDACTED}"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("/a place/with@signs?and=more", "/a place/with@signs?and=more"),
    ],
)
def test_a_url_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        "credentials:\n  password: hunter22abc",
        "auth:\n  password: hunter22abc",
        "secrets:\n  api_key: hunter22abc",
        "tokens:\n  access_token: hunter22abc",
        "Invalid credentials: password: hunter22abc",
        "token=password: hunter22abc",
        "credentials: my_password: hunter22abc",
    ],
)
def test_what_stands_behind_a_name_may_be_another_name(text: str) -> None:
    assert redact(text) == text.replace("hunter22abc", REDACTED)


class Talkative(AbstractFileSystem):
    """A file system that says in each error how it was opened."""

    protocol = "talkative"
    cachable = False

    def __init__(self, **options: Any) -> None:
        """Keep the options."""
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.options = options

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"opened": path}

    def cat_file(self, path: str, *_args: Any, **_kwargs: Any) -> bytes:
        """Fail."""
        raise PermissionError(f"{path}: denied for {self.options}")

    def info(self, path: str, **_kwargs: Any) -> Any:
        """Fail."""
        raise PermissionError(f"{path}: denied for {self.options}")


def test_an_archive_names_no_credentials_of_its_url_or_options() -> None:
    registry: Any = fsspec  # which ships no types
    registry.register_implementation("talkative", Talkative, clobber=True)
    archive = Archive(
        "talkative://ann:hunter%2F22@place/x?token=qwertz-zz",
        {"password": "optional-word", "nested": {"secret": "inner-word"}, "region": "somewhere"},
    )
    assert archive.url == f"talkative://{REDACTED}@place/x?token={REDACTED}"
    for failing in (archive.archive_id, lambda: archive.get("0" * 64)):
        with pytest.raises(ArchiveError, match="somewhere") as caught:
            failing()
        said = "".join(traceback.format_exception(caught.value))
        for secret in ("hunter", "qwertz", "optional-word", "inner-word"):
            assert secret not in said


def test_the_beginning_of_an_input_that_lists_show_has_no_secret_not_even_a_part_of_one() -> None:
    for before in ("pay with", "x" * 110):
        shown = memo(f"{before} {SHAPES[1]} now", now=0.0)["input"]
        assert shown == f"{before} {REDACTED} now"[:120]


def test_of_a_text_of_megabytes_only_the_beginning_is_kept_and_no_half_of_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "a plain word or two, as a passphrase has them"
    monkeypatch.setenv("VAULT_PASSPHRASE", secret)
    text = "x" * (LONGEST_READ - len(secret) // 2) + secret + "y" * 3_000_000
    kept = redact_long(text)
    assert len(kept) <= LONGEST_READ
    assert secret[:9] not in kept
    assert kept.endswith(f"(of {len(text)} characters)")
    assert len(safe_text(text)) == LONGEST_KEPT
    assert redact_long(f"it is {secret}") == f"it is {REDACTED}"
