"""What hosts may do in the account: open sessions, read their own weights, pull their own images. Nothing else."""

from __future__ import annotations

import json
from typing import Any

import pulumi
from pulumi_aws import iam

from inferlift.provision.aws import naming
from inferlift.provision.aws.scope import Scope


class HostIdentity(pulumi.ComponentResource):
    """The role of all hosts of a site, and one of the monitor's own where its guard writes DNS. What they allow is
    known before anything is made, so that a plan can judge it."""

    profile_arn: pulumi.Output[str]
    monitor_arn: pulumi.Output[str]

    def __init__(self, scope: Scope) -> None:
        super().__init__("inferlift:aws:HostIdentity", scope.part("identity"))
        self._scope = scope
        self.profile_arn = self.monitor_arn = self._role("host", host_policy(scope))
        if (guard := scope.plan.guard_rights.get(scope.site.name)) is not None:
            both = host_policy(scope)
            both["Statement"] += json.loads(guard)["Statement"]
            self.monitor_arn = self._role("monitor", both)
        self.register_outputs({"profile_arn": self.profile_arn, "monitor_arn": self.monitor_arn})

    def _role(self, what: str, policy: dict[str, Any]) -> pulumi.Output[str]:
        """The ARN of the instance profile."""
        scope = self._scope
        role = iam.Role(
            scope.part(f"{what}-role"),
            name=scope.name(what),
            path=naming.IAM_PATH,
            assume_role_policy=json.dumps(trusts("ec2.amazonaws.com")),
            tags=scope.tags(f"{what}-role"),
            opts=scope.child(self),
        )
        iam.RolePolicy(
            scope.part(f"{what}-rights"),
            name=scope.name(what),
            role=role.name,
            policy=json.dumps(policy),
            opts=scope.child(self),
        )
        if scope.plan.batch:
            iam.RolePolicyAttachment(
                scope.part("queue-agent"),
                role=role.name,
                policy_arn="arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role",
                opts=scope.child(self),
            )
        profile = iam.InstanceProfile(
            scope.part(f"{what}-profile"),
            name=scope.name(what),
            path=naming.IAM_PATH,
            role=role.name,
            tags=scope.tags(f"{what}-profile"),
            opts=scope.child(self),
        )
        return profile.arn


def host_policy(scope: Scope) -> dict[str, Any]:
    """Session Manager's and the registry's calls know no resources: for them alone the resource is *."""
    store = scope.plan.store
    sessions = [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]
    statements = [_allow([*sessions, *(["ecr:GetAuthorizationToken"] if store else [])], ["*"])]
    if store:
        place = f"{scope.site.region}:{scope.account}"
        bucket = f"arn:aws:s3:::{scope.bucket}"
        own_key = {"StringEquals": {f"aws:ResourceTag/{naming.OWNER}": scope.label}}
        pull = ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"]
        statements += [
            _allow(["s3:GetObject", "s3:PutObject"], [f"{bucket}/*"]),
            _allow(["s3:ListBucket", "s3:GetBucketLocation"], [bucket]),
            {**_allow(["kms:Decrypt", "kms:GenerateDataKey"], [f"arn:aws:kms:{place}:key/*"]), "Condition": own_key},
            _allow(pull, [f"arn:aws:ecr:{place}:repository/{scope.name('images')}"]),
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def trusts(service: str) -> dict[str, Any]:
    """Who may take a role: one AWS service."""
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
    }


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}
