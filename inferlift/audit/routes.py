"""Paths turned into routes: declared ones, or ids folded so that a million conversations are one route; and the guess
of which routes are inference."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

MAX_ROUTES = 5000
OTHER, OTHER_INFERENCE = "(other)", "(other)/inference"
# A part of four or more characters with a digit in it is an id; so is any number.
_ID = r"/(?:[0-9][^/]{3,}|[^/0-9][0-9][^/]{2,}|[^/0-9]{2}[0-9][^/]+|[^/0-9]{3,}[0-9][^/]*)"
_NUMBER = r"/[0-9]{1,3}(/|$)"
# What paths of model servers and AI services are called: OpenAI, vLLM, TGI, llama.cpp, Ollama, KServe and Triton.
INFERENCE = re.compile(
    r"(?:^|[/_.:-])(?:chat|completions?|generat\w*|infer|inference|predict\w*|embed\w*|rerank|classif\w*|moderations?|"
    r"transcri\w*|translat\w*|speech|tts|asr|vision|ocr|recogni\w*|detect\w*|segment\w*|summar\w*|prompts?|ask|answers?|"
    r"assistants?|llm|invoke|invocations|v1/messages|v1/responses)(?:$|[/_.:-])",
    re.I,
)


class Routes:
    """Numbers routes as they appear. `declared`: paths that are inference, each with what lies below it."""

    def __init__(self, declared: Sequence[str] | None) -> None:
        self.declared = None if declared is None else [route.rstrip("/") or "/" for route in declared]
        # declared ones come first: they are never folded, however many others there are
        self.names: list[str] = list(dict.fromkeys(self.declared or ()))
        self._ids: dict[str, int] = {name: number for number, name in enumerate(self.names)}

    def of(self, paths: pl.Series) -> tuple[list[str], pl.DataFrame]:
        """The names of the routes, and (path, route as a place in that list, hit: declared) of each distinct path."""
        distinct = pl.DataFrame({"path": paths.unique().drop_nulls()})
        path = pl.col("path")
        # a query that was escaped, and what Java writes after a `;`, may hold keys
        named = path.str.replace(r"(?i)(?:%3f|;).*$", "").str.replace_all(_ID, "/*")
        for _ in range(2):  # neighbours share a slash
            named = named.str.replace_all(_NUMBER, "/*${1}")
        if not self.declared:
            return _places(distinct.with_columns(named.alias("name"), pl.lit(False).alias("hit")))
        hit = pl.lit(None, dtype=pl.String)
        for route in sorted(self.declared, key=len):  # the longest that fits is the last to be asked
            below = path.str.starts_with(route.rstrip("/") + "/")
            hit = pl.when((path == route) | below).then(pl.lit(route)).otherwise(hit)
        return _places(distinct.with_columns(pl.coalesce(hit, named).alias("name"), hit.is_not_null().alias("hit")))

    def number(self, name: str) -> int:
        """Past MAX_ROUTES new ones are folded to their first part (up to what says inference), then to two."""
        known = self._ids.get(name)
        if known is not None:
            return known
        if len(self.names) >= MAX_ROUTES:
            told = INFERENCE.search(name)
            head = name[: told.end()] if told else "/" + name.lstrip("/").split("/", 1)[0]
            name = head.rstrip("/") + "/..."
            if name not in self._ids and len(self.names) >= 2 * MAX_ROUTES:
                name = OTHER_INFERENCE if told else OTHER
            if (known := self._ids.get(name)) is not None:
                return known
        self._ids[name] = len(self.names)
        self.names.append(name)
        return self._ids[name]


def guessed(names: Sequence[str]) -> list[str]:
    """Of the routes that are posted to, those whose names say inference; all of them where none does."""
    telling = [name for name in names if INFERENCE.search(name)]
    return telling or list(names)


def _places(distinct: pl.DataFrame) -> tuple[list[str], pl.DataFrame]:
    names = distinct["name"].unique().sort()
    at = pl.DataFrame({"name": names, "route": pl.int_range(len(names), dtype=pl.UInt32, eager=True)})
    return names.to_list(), distinct.join(at, on="name", how="left").drop("name")
