"""Deterministic names and the one tag set: what tells ours from everybody else's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

OWNER, NAME, ROLE, SITE = (f"inferlift:{key}" for key in ("owner", "name", "role", "site"))
RESOURCE = "inferlift:resource"  # the resource's name in the program: a killed create is found again by it
DATA = "inferlift:data"  # "keep": holds data, removed with --delete-data only
IAM_PATH = "/inferlift/"


def short(label: str) -> str:
    """Ten characters that stand for the owner label where AWS allows few: load balancers take 32."""
    return "il-" + hashlib.sha256(label.encode()).hexdigest()[:7]


def named(label: str, what: str) -> str:
    """Name of a resource, e.g. il-3fa2c1a-model-1; the same for the same label, always.

    Load balancers and target groups allow 32 characters: theirs are short enough by themselves.
    """
    name = f"{short(label)}-{what}"
    if len(name) > 57:  # with seven more for a launch template's digest: the 64 characters that IAM allows
        raise ValueError(f"{name} is too long for AWS")
    return name


def bucket_name(label: str, account: str) -> str:
    """Buckets share one name space over all accounts: the account is part of the name."""
    return f"inferlift-{hashlib.sha256(f'{account} {label}'.encode()).hexdigest()[:16]}"


def tags(label: str, what: str, more: Mapping[str, str] | None = None, **known: str) -> dict[str, str]:
    """The tag set of one resource. `known`: role, site, name, data."""
    own = {OWNER: label, RESOURCE: what, "Name": f"{label} {what}", "managed-by": "inferlift"}
    return {**(more or {}), **own, **{f"inferlift:{key}": value for key, value in known.items()}}
