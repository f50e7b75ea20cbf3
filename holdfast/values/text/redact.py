"""Keep secrets out of errors, records and logs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit

SHORTEST_SECRET = 8
REDACTED = "[redacted]"

LONGEST_READ = 100_000
"""Characters of a foreign text that are looked at: megabytes would hold up the process."""

_LONGEST_SECRET = 4096

_SECRET_NAME = re.compile(
    r"(KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_)PATS?|_PWD|_AUTH|_JWT)"
    r"(_\d+)?$"
)
"""Names of environment variables, and of storage options, whose values are secrets."""

_WORDS = (
    r"(?:tokens?|secrets?|pass(?:words?|wd|phrase|code)?|pwd|signature|sig|credentials?|jwt"
    r"|session[_-]?(?:id|key)"
    r"|api[_-]?keys?|access[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|shared[_-]?keys?"
    r"|private[_-]?keys?|encryption[_-]?keys?|signing[_-]?keys?|auth"
    r"|mot_de_passe|passwort|kennwort|contrase[nñ]a|senha)"
)

_SHAPES = re.compile(
    # A digit or a capital is asked for where the shape alone could be an ordinary word.
    r"(?:\b|(?<=_)|(?<=%[0-9A-F]{2}))(?:sk|pk|rk)-(?=[A-Za-z_-]{0,100}[0-9A-Z]|[a-z]{16})[A-Za-z0-9_-]{12,}"
    r"|\bc2st(?:cHJvai|YW50L)[A-Za-z0-9+/]{16,}={0,2}"  # sk-proj-, sk-ant- in Base64
    r"|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|\bwhsec_[A-Za-z0-9+/=]{16,}"
    r"|\bBearer\s+(?=[A-Za-z._~+/=-]*\d|\S{24})[A-Za-z0-9._~+/=-]{12,}"
    r"|\bBasic\s+(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/]{12,}={0,2}"
    r"|\bgh[a-z]_[A-Za-z0-9]{16,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{16,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bxox[a-z](?:\.[a-z]+)?-[A-Za-z0-9-]{8,}"
    r"|\bxapp-\d-[A-Za-z0-9-]{8,}"
    r"|\bhooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]+"
    r"|\b(?:AKIA|ASIA|ABIA|ACCA|AROA)[A-Z0-9]{16}\b"
    r"|(?:(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}|\beyJ[A-Za-z0-9_-]{8,4096})"
    r"\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bya29\.[A-Za-z0-9_-]{20,}"
    r"|\b(?:npm|hf|dop_v1|shpat)_[A-Za-z0-9]{24,}"
    r"|\b(?:hf[ds]|lin_api|gsk|r8|ntn|pscale_[a-z]{2,5})_[A-Za-z0-9_-]{24,}"
    r"|\b(?:pplx-|xai-|secret_(?=[A-Za-z0-9]{40}))[A-Za-z0-9]{24,}"
    r"|\bhv[sbr]\.[A-Za-z0-9_-]{24,}"
    r"|\b(?:dapi|SK)[0-9a-f]{32}\b"
    r"|\bkey-(?=[a-z]*[0-9])[0-9a-z]{32}\b"
    r"|\b\d{8,10}:AA[A-Za-z0-9_-]{32,33}\b"
    r"|\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}\b"
    r"|\bAGE-SECRET-KEY-1[A-Z0-9]{40,}"
    r"|\bpypi-[A-Za-z0-9_-]{32,}"
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
"""What is a credential by its looks, as its issuers document it.

This and the patterns below try no long run of characters again from each place in it: a text of a
megabyte, without spaces as Chinese is, would hold up its process for minutes.
"""

_IN_URL = re.compile(r"((?<=[A-Za-z0-9+.-])://[^\s/?#:@\"'<>]*):([^\s/?#@\"'<>]+)@")
"""User and password of a URL."""

_USER_TOKEN = re.compile(
    r"((?<=[A-Za-z0-9+.-])://)(?=[^\s/?#:@\"'<>]{0,100}\d)([A-Za-z0-9_.~%-]{16,200})@"
)
"""A URL whose user is a token."""

_IN_COMMAND = re.compile(
    r"(\bcurl\b[^\n|;&]{0,200}?\s(?:-u|--user)[\s=]*[^\s:]{1,100}:|\bsshpass\s+-p\s*"
    r"|\b(?:mysql|mysqldump|mariadb)\b[^\n|;&]{0,200}?\s-p)[^\s|;&]+"
)
"""A password that a program takes as an argument."""

_IN_QUERY = re.compile(
    rf"([?&#;](?:[\w.%-]*[_.-])?(?:{_WORDS}|key)=)(?!\[redacted\])[^&#\s\"'<>]+", re.IGNORECASE
)

_NAME = re.compile(rf"(?<![A-Za-z0-9]){_WORDS}\\?[\"']?\s*[=:]\s*(?:-\s+)?\\?[\"']?", re.IGNORECASE)
"""`password=`, `"api_key": "`: the name of a secret, up to its value."""

_BEGINNING = re.compile(r"(?!\w+:/)(?=[^\s\"'&,;\\\[\]]{8})[^\s\"'&,;\\]{8,1000}")
"""The beginning of a value, with what follows it at once: what it is judged by."""

_VALUE = re.compile(r"[^\s\"'&,;\\\[\]]+")
_PASSWORD = re.compile(
    r"(?:pass(?:words?|wd|phrase|code)?|pwd)\\?[\"']?(?:=\\?[\"']?|\s*:\s*\\?[\"'])$", re.IGNORECASE
)
"""The name of a password whose value follows at once, or in quotes: any text may be one."""

_ANY = re.compile(
    r"(?!(?:none|null|true|false|undefined)\b|[$<{(*]|[\w.]{1,100}\()[^\s\"'&,;\\\[\]]{6,1000}",
    re.IGNORECASE,
)
"""Such a value, but not an empty one or an expression of a program or a template."""

_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[A-Za-z]")

_concealed: set[str] = set()
"""Secrets of this process that are in no environment variable."""

_USER_INFO = re.compile(r"(://)[^\s/?#]*@")
_QUERY_VALUE = re.compile(r"([?&;][^=&;#\s]*=)[^&;#\s]*")


def holds_secret(name: str) -> bool:
    """Whether an argument of this name is a secret, or may hold some."""
    return _names_secret(name) or name in ("options", "storage_options")


def redact(text: str) -> str:
    """Replace secrets in a text.

    A secret is the value of an environment variable whose name says so (it ends in KEY, TOKEN,
    SECRET, PASSWORD, PAT, CREDENTIALS and the like, or in their plurals) and that has at least
    eight characters; the password in a variable that is a URL; a text of the shape of a credential
    (keys and tokens of well-known services, JWTs, private keys); a password or a token in a URL or
    behind such a name; and what `conceal` was given.
    """
    return replaced(text, lambda _: REDACTED)


def redact_long(text: str) -> str:
    """Replace secrets in the beginning of a text, and say that it goes on."""
    if len(text) <= LONGEST_READ:
        return redact(text)
    # The cut may go through a secret, whose first half no pattern knows: it is left out.
    return f"{redact(text[:LONGEST_READ])[:-_LONGEST_SECRET]} ... (of {len(text)} characters)"


def without(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces secrets in a text, also where they are written as JSON.

    That includes a JSON text inside another one, as arguments of a call in a record are.
    """
    forms = {secret for secret in secrets if secret}
    for _ in range(2):
        forms |= {json.dumps(f, ensure_ascii=plain)[1:-1] for f in forms for plain in (True, False)}
    longest_first = sorted(forms, key=len, reverse=True)

    def hide(text: str) -> str:
        for form in longest_first:
            text = text.replace(form, REDACTED)
        return text

    return hide


def in_texts(value: Any, hide: Callable[[str], str], *, by_name: bool = False) -> Any:
    """Change every text of JSON data, keys included.

    Args:
        value: The data.
        hide: Changes a text.
        by_name: Whether to replace also each text whose key says that it is a secret.
    """
    match value:
        case str():
            return hide(value)
        case list() | tuple():
            items = cast("Sequence[Any]", value)
            return [in_texts(item, hide, by_name=by_name) for item in items]
        case dict():
            data = cast("dict[str, Any]", value)
            return {
                hide(key): REDACTED
                if by_name and isinstance(item, str) and _names_secret(key)
                else in_texts(item, hide, by_name=by_name)
                for key, item in data.items()
            }
        case _:
            return value


def known_secrets() -> set[str]:
    """Return the secrets of this process: of its environment, and what `conceal` was told of."""
    found, parts = set(_concealed), list[str]()
    for name, value in os.environ.items():
        if len(value) < SHORTEST_SECRET:
            continue
        if _names_secret(name):
            found.add(value)
            if name.upper().endswith("S"):
                parts += re.split(r"[\s,;]+", value)
        elif "://" in value:
            parts += _passwords(value)
    if parts:
        found.update(part for part in parts if len(part) >= SHORTEST_SECRET)
    return found


def replaced(text: str, hide: Callable[[str], str]) -> str:
    """Replace secrets, each by what `hide` makes of it."""
    for secret in sorted(known_secrets(), key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, hide(secret))
    text = _SHAPES.sub(lambda found: hide(found[0]), text)
    text = _IN_URL.sub(lambda found: f"{found[1]}:{hide(found[2])}@", text)
    text = _USER_TOKEN.sub(lambda found: f"{found[1]}{hide(found[2])}@", text)
    text = _IN_COMMAND.sub(lambda found: found[1] + hide(found[0].removeprefix(found[1])), text)
    text = _IN_QUERY.sub(lambda found: found[1] + hide(found[0].removeprefix(found[1])), text)
    return _without_values(text, hide)


def conceal(secrets: Iterable[str]) -> None:
    """Have `redact` replace these texts from now on; over-short ones are left out."""
    _concealed.update(each for each in secrets if len(each) >= SHORTEST_SECRET)


def without_credentials(url: str) -> str:
    """Return a URL without user, password and the values of its query; a path as it is."""
    if "://" not in url:
        return url
    return _QUERY_VALUE.sub(rf"\1{REDACTED}", _USER_INFO.sub(rf"\1{REDACTED}@", url))


def credentials_of(url: str, options: Mapping[str, object]) -> tuple[str, ...]:
    """List the secrets in a URL and in the options that belong to it, longest first."""
    found = {*_in_url(url), *_in_options(options)}
    return tuple(sorted((each for each in found if each), key=len, reverse=True))


def _without_values(text: str, hide: Callable[[str], str]) -> str:
    """Replace the values behind names of secrets: passwords, and what has letters and digits.

    A value that is not a secret may be the name of one, as in `credentials: password: ...`, so the
    search goes on behind the name then.
    """
    parts: list[str] = []
    done = at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        is_password = _PASSWORD.search(name[0]) is not None
        value = (_ANY if is_password else _BEGINNING).match(text, at)
        is_mixed = value and _DIGIT.search(value[0]) and _LETTER.search(value[0])
        if value is None or not (is_password or is_mixed):
            continue
        whole = _VALUE.match(text, at)
        parts += [text[done:at], hide(whole[0] if whole else "")]
        done = at = at if whole is None else whole.end()
    return "".join([*parts, text[done:]])


@lru_cache(1000)
def _names_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name.upper()))


def _passwords(url: str) -> Iterator[str]:
    """Yield the password of a URL, as it is there and as it is sent."""
    for found in _IN_URL.finditer(url):
        yield found[2]
        yield unquote(found[2])


def _in_url(url: str) -> Iterator[str]:
    if "://" not in url:
        return
    for place in re.split(r"::", url):
        user_info, _, _ = urlsplit(place).netloc.rpartition("@")
        secret = user_info.partition(":")[2] or user_info
        yield from (user_info, secret, unquote(secret))
    for found in _QUERY_VALUE.finditer(url):
        raw = found[0].partition("=")[2]
        if len(raw) >= SHORTEST_SECRET:
            yield from (raw, unquote(raw))


def _in_options(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _in_options(cast("dict[str, object]", value))
        elif isinstance(value, str) and _names_secret(name):
            yield value
        elif isinstance(value, str):
            yield from _in_url(value)


_ADDRESS = re.compile(r"(https?://)(?:[^\s/?#]*@)?([^\s?#]*)[^\s]*")


def bare_addresses(text: str) -> str:
    """Leave out of web addresses in a text what may hold a secret: user, query and fragment."""
    return _ADDRESS.sub(r"\1\2", text)
