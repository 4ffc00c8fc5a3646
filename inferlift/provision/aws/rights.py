"""The least that an operator of this target must be allowed, generated from the table of calls beside this file.

What tags can limit is limited by our tag, what names can limit by our names; reading is not limited. `calls` of the
table are those that were seen against the stand-ins; what only the real provider asks is marked so there.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from inferlift.provision.aws.tables import rows

# Characters without white space: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
MANAGED_LIMIT = 6144
_TAG = "managed-by"
# What a resource of the table's column means for a statement: the resource, and the condition that limits it.
_SCOPES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "read": ("*", None),
    "unlimited": ("*", None),  # AWS knows neither a resource nor a condition for it
    "make": ("*", {"StringEqualsIfExists": {f"aws:RequestTag/{_TAG}": "inferlift"}}),
    "change": ("*", {"StringEquals": {f"aws:ResourceTag/{_TAG}": "inferlift"}}),
}


def operator_policies(account: str) -> list[dict[str, Any]]:
    """IAM policy documents for the account's twelve digits, each small enough for a managed policy; all are needed."""
    scopes: dict[str, list[str]] = {}
    for row in rows("operator_rights.csv"):
        scopes.setdefault(row["resource"], []).append(row["action"])
    made: list[dict[str, Any]] = [_document([])]
    for scope, actions in scopes.items():
        resource, condition = _SCOPES.get(scope, (scope.format(account=account), None))
        statement: dict[str, Any] = {"Effect": "Allow", "Action": sorted(set(actions)), "Resource": resource}
        if condition:
            statement["Condition"] = condition
        grown = _document([*made[-1]["Statement"], statement])
        if len(json.dumps(grown, separators=(",", ":"))) > MANAGED_LIMIT:
            made.append(_document([statement]))
        else:
            made[-1] = grown
    return made


def known_calls() -> set[str]:
    """Calls, as boto3 names them, that the policy has an action for."""
    return {row["call"] for row in rows("operator_rights.csv")}


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


if __name__ == "__main__":
    print(json.dumps(operator_policies(sys.argv[1] if len(sys.argv) > 1 else "*"), indent=2))
