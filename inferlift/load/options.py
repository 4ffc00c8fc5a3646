"""The standalone test's options as a command line gives them: texts and numbers, empty where not given."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from inferlift.errors import DeclarationError
from inferlift.load.asked import Asked
from inferlift.load.endpoint import Sent
from inferlift.load.protocols import NAMES
from inferlift.profile import Targets

_OPENAI = ("chat", "completions")
USED_BY: Mapping[str, tuple[str, ...]] = {
    "prompts": (*_OPENAI, "embeddings"), "extra": _OPENAI, "no-stream": _OPENAI, "cached": (*_OPENAI, "embeddings"),
    "body": ("http", "kserve", "kserve-grpc"), "rows": ("http",), "image": ("image",), "field": ("image",),
    "check": ("image", "http"),
}  # fmt: skip


def asked(
    urls: Sequence[str],
    *,
    requests: int = 1000,
    users: int = 0,
    rate: float = 0.0,
    arrivals: str = "poisson",
    shape: str = "",
    seed: str = "",
    knee: float = 0.0,
    protocol: str = "chat",
    prompts: str = "",
    max_tokens: int = 16,
    stream: bool = True,
    cached: bool = False,
    model: str = "",
    extra: str = "",
    body: str = "",
    rows: str = "",
    images: Sequence[str] = (),
    field: str = "",
    check: str = "",
    p95_ttft: float = 0.0,
    p95_total: float = 0.0,
    error_share: float = 0.01,
    quality: str = "",
    quality_share: float = 0.9,
    key: str = "",
    key_header: str = "Authorization",
    ca: str = "",
    prices: Sequence[str] = (),
    currency: str = "USD",
    warm_up: int = -1,
    idle: float = 0.0,
    self_check: bool = True,
    timeout: float = 120.0,
    deadline: float = 0.0,
    workers: int = 0,
    bind: str = "127.0.0.1:5557",
    folder: str = "",
    html: str = "",
    junit: str = "",
    replace: bool = False,
) -> Asked:
    """Raises DeclarationError for what contradicts itself or cannot be.

    `body` is a Jinja template (protocol http) or tensors (kserve); times of targets in ms, other times in seconds;
    a price is by the hour, "-" where it is not known; users go neither with a rate nor with a shape.
    """
    for name, value in (("users", users), ("rate", rate), ("knee", knee), ("p95-ttft", p95_ttft),
                        ("p95-total", p95_total), ("idle", idle), ("deadline", deadline), ("timeout", timeout),
                        ("workers", workers)):  # fmt: skip
        if not (math.isfinite(value) and value >= 0):
            raise DeclarationError(f"--{name} is a finite number and not negative, got {value:g}")
    for name, least, count in (("timeout", 1e-3, timeout), ("max-tokens", 1, max_tokens), ("requests", 1, requests)):
        if count < least:
            raise DeclarationError(f"--{name} is at least {least:g}, got {count:g}")
    if warm_up < -1:
        raise DeclarationError(f"--warm-up is not negative, got {warm_up}", why="0 sends none")
    if p95_ttft and p95_total and p95_ttft > p95_total:
        raise DeclarationError(
            f"the first token ({p95_ttft:g} ms) may come later than the last byte ({p95_total:g} ms)"
        )
    for name, share in (("error-share", error_share), ("quality-share", quality_share)):
        if not 0 <= share <= 1:
            raise DeclarationError(f"--{name} lies between 0 and 1, got {share:g}")
    _useless(
        protocol, rate=rate, arrivals=arrivals, ca=ca, urls=urls, key_header=key_header, key=key, quality=quality,
        given={"prompts": prompts, "extra": extra, "body": body, "rows": rows, "image": images, "field": field,
               "check": check, "no-stream": not stream, "cached": cached},
    )  # fmt: skip
    tensors = protocol.startswith("kserve")
    return Asked(
        urls=tuple(urls),
        requests=requests,
        users=users or None,
        rate=rate or None,
        arrivals=arrivals,
        shape=_path(shape),
        seed=_seed(seed),
        find_knee=knee or None,
        sent=Sent(
            protocol=protocol,
            texts=_path(prompts),
            max_tokens=max_tokens,
            stream=stream,
            fresh=not cached,
            model=model or None,
            extra=extra or None,
            body=None if tensors else _path(body),
            rows=_path(rows),
            tensors=_path(body) if tensors else None,
            images=tuple(Path(image) for image in images),
            field=field or None,
            check=check or None,
        ),
        targets=Targets(
            p95_ttft_ms=p95_ttft or None,
            p95_total_ms=p95_total or None,
            error_share=error_share,
            quality=quality_share if quality else None,
        ),
        quality=_path(quality),
        key=key or None,
        key_header=key_header,
        ca=ca or None,
        prices=tuple(map(_price, prices)),
        currency=currency,
        warm_up=None if warm_up < 0 else warm_up,
        idle_s=idle or None,
        check_self=self_check,
        timeout_s=timeout,
        deadline_s=deadline or None,
        workers=workers,
        bind=bind,
        folder=_path(folder),
        html=_path(html),
        junit=_path(junit),
        replace=replace,
    )


def _useless(
    protocol: str, *, given: Mapping[str, object], rate: float, arrivals: str, ca: str, urls: Sequence[str],
    key_header: str, key: str, quality: str,
) -> None:  # fmt: skip
    """An option that would change nothing is a mistake of whoever typed it."""
    for name, value in given.items():
        if value and protocol in NAMES and protocol not in USED_BY[name]:
            raise DeclarationError(
                f"--{name} means nothing to the protocol {protocol}", why=f"it is for {', '.join(USED_BY[name])}"
            )
    if arrivals != "poisson" and not rate:
        raise DeclarationError("--arrivals means nothing without --rate")
    if ca and not any(url.startswith(("https:", "grpcs:")) for url in urls):
        raise DeclarationError("--ca means nothing without an https URL")
    if key_header != "Authorization" and not key:
        raise DeclarationError("--key-header means nothing without --key")
    if quality and protocol not in ("chat", "embeddings"):
        raise DeclarationError(f"--quality asks chat or embeddings, not {protocol}")


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _seed(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise DeclarationError(f"{text!r} is no seed", why="a whole number, not negative; the last test told its own")
    return int(text)


def _price(text: str) -> float | None:
    if text in ("", "-"):
        return None
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0 and math.isfinite(value):
            return value
    raise DeclarationError(f"{text!r} is no price by the hour", why="a number, or - where it is not known")
