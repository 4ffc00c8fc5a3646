"""Rules that every plan must pass before anything is made, as code over what the program asks for.

A resource is judged by its inputs as the engine sends them (camelCase). What a rule does not know it refuses: a type
that is missing in resource_types.csv fails, so that nothing is unpriced or untagged by absence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferlift.provision.aws import naming
from inferlift.provision.aws.tables import rows

ANYWHERE = ("0.0.0.0/0", "::/0")
# Policies of AWS' own that a role may carry; all others can change behind our back, or allow too much.
AWS_POLICIES = ("arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role",)


@dataclass(frozen=True)
class Asked:
    """One resource that the program asks for."""

    type: str
    name: str
    inputs: Mapping[str, Any]


def findings(asked: Iterable[Asked]) -> list[str]:
    """What breaks a rule, in words; empty when all is well."""
    everything = [a for a in asked if a.type.startswith("aws:")]
    known = {row["type"]: row for row in rows("resource_types.csv")}
    found: list[str] = []
    for one in everything:
        if one.type not in known:
            found.append(f"{one.name}: {one.type} is not in resource_types.csv: tags and price are unknown")
            continue
        found += [f"{one.name}: {why}" for why in _tags(one, known[one.type]["tags"])]
        for rule in _RULES.get(one.type, ()):
            found += [f"{one.name}: {why}" for why in rule(one.inputs)]
    return [*found, *_buckets(everything)]


def _tags(one: Asked, how: str) -> list[str]:
    if how == "no":
        return []
    tags = one.inputs.get("tags") or {}
    if how == "list":
        missed = [t["key"] for t in tags if not t.get("propagateAtLaunch")]
        tags = {t["key"]: t["value"] for t in tags}
        if missed:
            return [f"the tag {missed[0]} does not reach its instances"]
    wanted = (naming.OWNER, naming.RESOURCE, "managed-by")
    return [f"the tag {key} is missing" for key in wanted if not tags.get(key)]


def _ingress(inputs: Mapping[str, Any]) -> list[str]:
    """From everywhere nothing but 443; from stated ranges no SSH unless the group is the bastion's; never all."""
    found = []
    for rule in inputs.get("ingress") or []:
        ranges = [*(rule.get("cidrBlocks") or []), *(rule.get("ipv6CidrBlocks") or [])]
        low, high = int(rule["fromPort"]), int(rule["toPort"])
        everything = str(rule["protocol"]) in ("-1", "all")
        if ranges and everything:
            found.append(f"every port is open to {', '.join(ranges)}")
        public = [r for r in ranges if r in ANYWHERE]
        if public and (low <= 22 <= high or everything):
            found.append("SSH is open to everybody")
        elif public and (low, high) != (443, 443):
            found.append(f"port {low} is open to everybody")
    return found


def _template(inputs: Mapping[str, Any]) -> list[str]:
    found = []
    if (inputs.get("metadataOptions") or {}).get("httpTokens") != "required":
        found.append("instance metadata answers without a token (IMDSv1)")
    disks = inputs.get("blockDeviceMappings") or []
    if not disks:
        found.append("its disks are as the image has them, perhaps not encrypted")
    found += [
        f"the disk {d.get('deviceName')} is not encrypted"
        for d in disks
        if str((d.get("ebs") or {}).get("encrypted")).lower() != "true"
    ]
    tagged = {t.get("resourceType") for t in inputs.get("tagSpecifications") or []}
    found += [f"a {kind} that it makes has no tags" for kind in ("instance", "volume") if kind not in tagged]
    if "PRIVATE KEY" in str(inputs.get("userData")):
        found.append("there is a private key in its user data")
    return found


def _iam_policy(inputs: Mapping[str, Any]) -> list[str]:
    unscoped = {row["action"] for row in rows("unscoped_actions.csv")}
    try:
        statements = json.loads(inputs["policy"])["Statement"]
    except (ValueError, KeyError, TypeError):
        return ["what it allows is not known before it is made"]
    found = []
    for statement in statements:
        if statement["Effect"] != "Allow":
            continue
        actions, resources = _list(statement.get("Action")), _list(statement.get("Resource"))
        if "NotAction" in statement or "NotResource" in statement:
            found.append("it allows everything but something")
        found += [f"it allows {action}" for action in actions if "*" in action]
        if "*" in resources:
            found += [f"it allows {action} on everything" for action in actions if action not in unscoped]
    return found


def _trust(inputs: Mapping[str, Any]) -> list[str]:
    statements = json.loads(inputs["assumeRolePolicy"])["Statement"]
    return ["anybody may take it" for s in statements if s.get("Principal") in ("*", {"AWS": "*"})]


def _attachment(inputs: Mapping[str, Any]) -> list[str]:
    arn = str(inputs.get("policyArn"))
    return [] if arn in AWS_POLICIES else [f"it carries {arn}"]


def _private(inputs: Mapping[str, Any]) -> list[str]:
    wanted = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    return [f"{key} is off" for key in wanted if inputs.get(key) is not True]


def _registry(inputs: Mapping[str, Any]) -> list[str]:
    found = [] if inputs.get("encryptionConfigurations") else ["its images are not encrypted by a key of ours"]
    if inputs.get("imageTagMutability") != "IMMUTABLE":
        found.append("a tag can be moved to another image")
    return found


def _key(inputs: Mapping[str, Any]) -> list[str]:
    return [] if inputs.get("enableKeyRotation") is True else ["it is never rotated"]


def _shared(inputs: Mapping[str, Any]) -> list[str]:
    return [] if inputs.get("kmsKeyId") else ["it is not encrypted by a key of ours"]


def _environment(inputs: Mapping[str, Any]) -> list[str]:
    resources = inputs.get("computeResources") or {}
    found = [] if resources.get("launchTemplate") else ["its hosts are made without our launch template"]
    return found if resources.get("minVcpus") == 0 else [*found, "it pays for hosts without jobs"]


def _buckets(everything: list[Asked]) -> list[str]:
    """Every bucket comes with the settings that make it private, versioned, encrypted and TLS only."""
    found = []
    beside = (
        "PublicAccessBlock",
        "Versioning",
        "ServerSideEncryptionConfiguration",
        "Policy",
        "LifecycleConfiguration",
    )
    types = [a.type for a in everything]
    for kind in beside if "aws:s3/bucket:Bucket" in types else ():
        if types.count(f"aws:s3/bucket{kind}:Bucket{kind}") < types.count("aws:s3/bucket:Bucket"):
            found.append(f"a bucket has no {kind}")
    return found


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


_RULES = {
    "aws:ec2/securityGroup:SecurityGroup": (_ingress,),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": (_ingress,),
    "aws:ec2/launchTemplate:LaunchTemplate": (_template,),
    "aws:iam/rolePolicy:RolePolicy": (_iam_policy,),
    "aws:iam/role:Role": (_trust,),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (_attachment,),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (_private,),
    "aws:ecr/repository:Repository": (_registry,),
    "aws:kms/key:Key": (_key,),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (_shared,),
    "aws:batch/computeEnvironment:ComputeEnvironment": (_environment,),
}
