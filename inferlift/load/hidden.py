"""What no sample, report or line on a screen may show: keys that a server echoes, and the values of a URL's query."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from inferlift import secret
from inferlift.load.target import Target

MASK = "***"
LEAST = 6  # letters of a key by which a text that was cut in its middle is still recognised
HARMLESS = ("api-version",)  # names in a query whose values tell versions
_SECRET_NAME = re.compile(r"(^|[_-])(api[_-]?key|key|token|secret|password|authorization)$", re.IGNORECASE)


def hider(target: Target) -> Callable[[str], str]:
    """From a text to the same text without the target's key, without its query's values, whole or cut at an end.

    Raises DeclarationError when the key's reference is unreadable.
    """
    words: set[str] = set()
    if target.key:
        value = secret.resolve(target.key)
        words |= {value, *(part for part in value.split() if len(part) >= LEAST)}
    words |= set(_query_values(target.route))
    forms = {f for w in words for f in (w, json.dumps(w)[1:-1], json.dumps(w, ensure_ascii=False)[1:-1],
                                        urllib.parse.quote(w, safe=""), urllib.parse.quote(w))}  # fmt: skip
    ordered = sorted((f for f in forms if f), key=len, reverse=True)
    if not ordered:
        return lambda text: text

    cut = [re.compile(re.escape(form[:size]) + r"(?=['\"\\]|$)")
           for form in ordered for size in range(len(form) - 1, LEAST - 1, -1)]  # fmt: skip

    def hide(text: str) -> str:
        for form in ordered:
            text = text.replace(form, MASK)
        for pattern in cut:
            text = pattern.sub(MASK, text)
        return text

    return hide


def body_shown(body: Any, hide: Callable[[str], str]) -> Any:
    """A body as it may be shown: what is named like a key is masked, and so is the target's key wherever it stands."""
    if isinstance(body, dict):
        return {k: MASK if _SECRET_NAME.search(str(k)) and isinstance(v, str) else body_shown(v, hide)
                for k, v in body.items()}  # fmt: skip
    if isinstance(body, list):
        return [body_shown(one, hide) for one in body]
    return hide(body) if isinstance(body, str) else body


def url_shown(url: str) -> str:
    """Without user, password and fragment, and with the query's values masked: a key may be among them."""
    parts = urllib.parse.urlsplit(url)
    query = "&".join(_masked(pair) for pair in parts.query.split("&")) if parts.query else ""
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def _masked(pair: str) -> str:
    name, equal, value = pair.partition("=")
    return pair if not equal or name.lower() in HARMLESS else f"{name}{equal}{MASK if value else ''}"


def _query_values(route: str) -> list[str]:
    pairs = urllib.parse.parse_qsl(urllib.parse.urlsplit(route).query)
    return [value for name, value in pairs if name.lower() not in HARMLESS and len(value) >= LEAST]
