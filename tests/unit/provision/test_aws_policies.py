"""Each rule finds what it is there for: one planted violation a rule, on a plan that is otherwise whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferlift.provision.aws import naming
from inferlift.provision.aws.policies import Asked, findings

TAGS = {naming.OWNER: "x/y/fleet", naming.RESOURCE: "it", "managed-by": "inferlift"}
ANY = ["0.0.0.0/0"]


def rule(port: int, ranges: list[str], protocol: str = "tcp", high: int | None = None) -> dict[str, Any]:
    return {"protocol": protocol, "fromPort": port, "toPort": high or port, "cidrBlocks": ranges}


def group(*rules: dict[str, Any]) -> Asked:
    return Asked("aws:ec2/securityGroup:SecurityGroup", "it", {"tags": TAGS, "ingress": list(rules)})


def template(**more: Any) -> Asked:
    good = {
        "tags": TAGS, "metadataOptions": {"httpTokens": "required"},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}],
        "tagSpecifications": [{"resourceType": k, "tags": TAGS} for k in ("instance", "volume")],
    }  # fmt: skip
    return Asked("aws:ec2/launchTemplate:LaunchTemplate", "it", {**good, **more})


def policy(**statement: Any) -> Asked:
    body = json.dumps({"Statement": [{"Effect": "Allow", **statement}]})
    return Asked("aws:iam/rolePolicy:RolePolicy", "it", {"policy": body})


def role(principal: Any) -> Asked:
    body = json.dumps({"Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]})
    return Asked("aws:iam/role:Role", "it", {"assumeRolePolicy": body, "tags": TAGS})


def of(kind: str, **inputs: Any) -> Asked:
    return Asked(kind, "it", {"tags": TAGS, **inputs})


PLANTED: list[tuple[list[Asked], str]] = [
    ([group(rule(22, ANY))], "SSH is open to everybody"),
    ([group(rule(0, ANY, high=65535))], "SSH is open to everybody"),
    ([group(rule(20, ["::/0"], high=30))], "SSH is open to everybody"),
    ([group(rule(8443, ANY))], "port 8443 is open to everybody"),
    ([group(rule(0, ["10.0.0.0/8"], protocol="-1"))], "every port is open to 10.0.0.0/8"),
    ([template(metadataOptions={"httpTokens": "optional"})], "IMDSv1"),
    ([template(metadataOptions=None)], "IMDSv1"),
    ([template(blockDeviceMappings=[])], "perhaps not encrypted"),
    ([template(blockDeviceMappings=[{"deviceName": "/dev/sdf", "ebs": {}}])], "/dev/sdf is not encrypted"),
    ([template(tagSpecifications=[])], "a volume that it makes has no tags"),
    ([template(tags={})], "the tag inferlift:owner is missing"),
    ([policy(Action="s3:*", Resource="arn:x")], "it allows s3:*"),
    ([policy(Action=["s3:GetObject"], Resource="*")], "it allows s3:GetObject on everything"),
    ([policy(NotAction="iam:*", Resource="arn:x")], "everything but something"),
    ([role("*")], "anybody may take it"),
    ([role({"AWS": "*"})], "anybody may take it"),
    ([of("aws:iam/rolePolicyAttachment:RolePolicyAttachment", policyArn="arn:aws:iam::aws:policy/AdministratorAccess")],
     "AdministratorAccess"),
    ([of("aws:s3/bucket:Bucket")], "a bucket has no PublicAccessBlock"),
    ([of("aws:s3/bucket:Bucket")], "a bucket has no Versioning"),
    ([of("aws:s3/bucket:Bucket")], "a bucket has no ServerSideEncryptionConfiguration"),
    ([of("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", blockPublicAcls=True)], "blockPublicPolicy is off"),
    ([of("aws:ecr/repository:Repository", imageTagMutability="IMMUTABLE")], "not encrypted"),
    ([of("aws:kms/key:Key")], "never rotated"),
    ([of("aws:fsx/lustreFileSystem:LustreFileSystem")], "not encrypted"),
    ([of("aws:batch/computeEnvironment:ComputeEnvironment", computeResources={"minVcpus": 4})], "without jobs"),
    ([of("aws:rds/instance:Instance")], "not in resource_types.csv"),
    ([of("aws:autoscaling/group:Group", tags=[{"key": k, "value": v} for k, v in TAGS.items()])], "does not reach"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "words"), PLANTED, ids=[words for _, words in PLANTED])
def test_a_planted_violation_is_found(asked: list[Asked], words: str) -> None:
    assert any(words in finding for finding in findings(asked)), findings(asked)


@pytest.mark.parametrize(
    "asked",
    [
        group(rule(443, ANY), rule(22, ["198.51.100.0/24"])),
        template(),
        policy(Action=["ssm:UpdateInstanceInformation"], Resource="*"),
        policy(Action=["s3:GetObject"], Resource="arn:aws:s3:::it/*"),
        role({"Service": "ec2.amazonaws.com"}),
    ],
    ids=lambda a: a.type.rpartition(":")[2],
)
def test_what_is_right_is_left_alone(asked: Asked) -> None:
    assert findings([asked]) == []


def test_rights_that_are_not_known_yet_are_no_rights() -> None:
    unknown = Asked("aws:iam/rolePolicy:RolePolicy", "it", {"policy": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"})
    assert findings([unknown]) == ["it: what it allows is not known before it is made"]
