"""Stand-in: launch templates, groups, schedules, rights and the front as calls."""

from __future__ import annotations

from typing import Any

from .kind import Aws, Json, Kind, gone, number, pascal, tag_list, tags_from, whole
from .kinds_network import Ec2


class LaunchTemplate(Ec2):
    about = ("describe_launch_templates", "LaunchTemplateIds", "LaunchTemplates", "launch-template")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_launch_template(
            LaunchTemplateName=i["name"], LaunchTemplateData=_data(i), TagSpecifications=self.specs(i)
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def change(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        if _data(old) != _data(new):
            made = aws.ec2.create_launch_template_version(LaunchTemplateId=identity, LaunchTemplateData=_data(new))
            version = str(made["LaunchTemplateVersion"]["VersionNumber"])
            aws.ec2.modify_launch_template(LaunchTemplateId=identity, DefaultVersion=version)

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        row = self.row(aws, identity) or {}
        return {"latestVersion": row.get("LatestVersionNumber", 1), "arn": f"arn:standin:{identity}"}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_launch_template(LaunchTemplateId=identity)


def _data(i: Json) -> Json:
    """The template's contents as EC2 calls them. boto3 checks every one against the service's own model."""
    strings = {"true": True, "false": False}
    data: Json = {
        "ImageId": i.get("imageId"), "InstanceType": i.get("instanceType"), "UserData": i.get("userData"),
        "EbsOptimized": strings.get(i.get("ebsOptimized", "")),
    }  # fmt: skip
    if profile := i.get("iamInstanceProfile"):
        data["IamInstanceProfile"] = pascal(profile)
    for key, name in (
        ("metadataOptions", "MetadataOptions"), ("placement", "Placement"),
        ("instanceMarketOptions", "InstanceMarketOptions"),
        ("capacityReservationSpecification", "CapacityReservationSpecification"),
    ):  # fmt: skip
        if i.get(key):
            data[name] = pascal(whole(i[key]))
    data["BlockDeviceMappings"] = [
        {
            "DeviceName": d["deviceName"],
            "Ebs": {
                k[:1].upper() + k[1:]: strings.get(v, v) if isinstance(v, str) else number(v)
                for k, v in d["ebs"].items()
            },
        }
        for d in i.get("blockDeviceMappings") or []
    ]
    data["NetworkInterfaces"] = [
        {
            "DeviceIndex": number(n["deviceIndex"]), "NetworkCardIndex": number(n["networkCardIndex"]),
            "Groups": n["securityGroups"], "DeleteOnTermination": strings[n["deleteOnTermination"]],
            "AssociatePublicIpAddress": strings[n["associatePublicIpAddress"]],
            **({"InterfaceType": n["interfaceType"]} if n.get("interfaceType") else {}),
        }
        for n in i.get("networkInterfaces") or []
    ]  # fmt: skip
    data["TagSpecifications"] = [
        {"ResourceType": t["resourceType"], "Tags": tag_list(t["tags"])} for t in i.get("tagSpecifications") or []
    ]
    return {k: v for k, v in data.items() if v not in (None, [])}


class Group(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        template = {"LaunchTemplateId": i["launchTemplate"]["id"], "Version": i["launchTemplate"]["version"]}
        aws.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=i["name"], LaunchTemplate=template, MinSize=number(i["minSize"]),
            MaxSize=number(i["maxSize"]), DesiredCapacity=number(i["desiredCapacity"]),
            VPCZoneIdentifier=",".join(i["vpcZoneIdentifiers"]), HealthCheckType=i["healthCheckType"],
            CapacityRebalance=i["capacityRebalance"],
            **({"TargetGroupARNs": i["targetGroupArns"]} if i.get("targetGroupArns") else {}), Tags=_group_tags(i),
        )  # fmt: skip
        aws.autoscaling.suspend_processes(AutoScalingGroupName=i["name"], ScalingProcesses=i["suspendedProcesses"])
        return str(i["name"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        rows = aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[identity])["AutoScalingGroups"]
        if not rows:
            return None
        row = rows[0]
        tags = [
            {"key": t["Key"], "value": t["Value"], "propagateAtLaunch": t["PropagateAtLaunch"]} for t in row["Tags"]
        ]
        return {
            **i, "minSize": row["MinSize"], "maxSize": row["MaxSize"], "desiredCapacity": row["DesiredCapacity"],
            "tags": _in_order(tags, i["tags"]),
            "suspendedProcesses": _in_order(
                [p["ProcessName"] for p in row["SuspendedProcesses"]], i["suspendedProcesses"]
            ),
        }  # fmt: skip

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        template = {"LaunchTemplateId": new["launchTemplate"]["id"], "Version": new["launchTemplate"]["version"]}
        aws.autoscaling.update_auto_scaling_group(
            AutoScalingGroupName=identity, LaunchTemplate=template, MinSize=number(new["minSize"]),
            MaxSize=number(new["maxSize"]), DesiredCapacity=number(new["desiredCapacity"]),
            VPCZoneIdentifier=",".join(new["vpcZoneIdentifiers"]),
        )  # fmt: skip
        aws.autoscaling.resume_processes(AutoScalingGroupName=identity)
        aws.autoscaling.suspend_processes(AutoScalingGroupName=identity, ScalingProcesses=new["suspendedProcesses"])
        dropped = [t for t in _group_tags(old) if t["Key"] not in {n["Key"] for n in _group_tags(new)}]
        if dropped:
            aws.autoscaling.delete_tags(Tags=dropped)
        aws.autoscaling.create_or_update_tags(Tags=_group_tags(new))

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=identity, ForceDelete=i["forceDelete"])


def _group_tags(i: Json) -> list[Json]:
    return [
        {
            "Key": t["key"], "Value": t["value"], "PropagateAtLaunch": t["propagateAtLaunch"],
            "ResourceId": i["name"], "ResourceType": "auto-scaling-group",
        }
        for t in i["tags"]
    ]  # fmt: skip


def _in_order(there: list[Any], wanted: list[Any]) -> list[Any]:
    """What is there, in the order in which it was asked for: AWS keeps none."""
    return [*(w for w in wanted if w in there), *(t for t in there if t not in wanted)]


class GroupSchedule(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.autoscaling.put_scheduled_update_group_action(
            AutoScalingGroupName=i["autoscalingGroupName"], ScheduledActionName=i["scheduledActionName"],
            StartTime=i["startTime"], MinSize=number(i["minSize"]), MaxSize=number(i["maxSize"]),
            DesiredCapacity=number(i["desiredCapacity"]),
        )  # fmt: skip
        return str(i["scheduledActionName"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        rows = aws.autoscaling.describe_scheduled_actions(AutoScalingGroupName=i["autoscalingGroupName"])
        names = [r["ScheduledActionName"] for r in rows["ScheduledUpdateGroupActions"]]
        return i if identity in names else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self.create(aws, new)

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.autoscaling.delete_scheduled_action(
            AutoScalingGroupName=i["autoscalingGroupName"], ScheduledActionName=identity
        )


class Placement(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        specs = [{"ResourceType": "placement-group", "Tags": tag_list(i["tags"])}]
        aws.ec2.create_placement_group(GroupName=i["name"], Strategy=i["strategy"], TagSpecifications=specs)
        return str(i["name"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if aws.ec2.describe_placement_groups(GroupNames=[identity])["PlacementGroups"] else None

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_placement_group(GroupName=identity)


class Role(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.iam.create_role(
            RoleName=i["name"], Path=i["path"], AssumeRolePolicyDocument=i["assumeRolePolicy"], Tags=tag_list(i["tags"])
        )
        return str(i["name"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        row = gone(lambda: aws.iam.get_role(RoleName=identity)["Role"])
        return {**i, "tags": tags_from(row.get("Tags"))} if row else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.iam.tag_role(RoleName=identity, Tags=tag_list(new["tags"]))
        aws.iam.update_assume_role_policy(RoleName=identity, PolicyDocument=new["assumeRolePolicy"])

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": aws.iam.get_role(RoleName=identity)["Role"]["Arn"]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.iam.delete_role(RoleName=identity)


class RolePolicy(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.iam.put_role_policy(RoleName=i["role"], PolicyName=i["name"], PolicyDocument=i["policy"])
        return f"{i['role']}:{i['name']}"

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        row = gone(lambda: aws.iam.get_role_policy(RoleName=i["role"], PolicyName=i["name"]))
        return i if row else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self.create(aws, new)

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.iam.delete_role_policy(RoleName=i["role"], PolicyName=i["name"])


class Attachment(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.iam.attach_role_policy(RoleName=i["role"], PolicyArn=i["policyArn"])
        return f"{i['role']}-{i['policyArn'].rpartition('/')[2]}"

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        rows = gone(lambda: aws.iam.list_attached_role_policies(RoleName=i["role"])["AttachedPolicies"]) or []
        return i if i["policyArn"] in [r["PolicyArn"] for r in rows] else None

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.iam.detach_role_policy(RoleName=i["role"], PolicyArn=i["policyArn"])


class Profile(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.iam.create_instance_profile(InstanceProfileName=i["name"], Path=i["path"], Tags=tag_list(i["tags"]))
        aws.iam.add_role_to_instance_profile(InstanceProfileName=i["name"], RoleName=i["role"])
        return str(i["name"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.iam.get_instance_profile(InstanceProfileName=identity)) else None

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": aws.iam.get_instance_profile(InstanceProfileName=identity)["InstanceProfile"]["Arn"]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.iam.remove_role_from_instance_profile(InstanceProfileName=identity, RoleName=i["role"])
        aws.iam.delete_instance_profile(InstanceProfileName=identity)


class LoadBalancer(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        where: Json = {"Subnets": i["subnets"]} if "subnets" in i else {
            "SubnetMappings": [
                {"SubnetId": m["subnetId"], "AllocationId": m["allocationId"]} for m in i["subnetMappings"]
            ]
        }  # fmt: skip
        made = aws.elbv2.create_load_balancer(
            Name=i["name"], Type=i["loadBalancerType"], Scheme="internal" if i["internal"] else "internet-facing",
            SecurityGroups=i["securityGroups"], Tags=tag_list(i["tags"]), **where,
        )  # fmt: skip
        return str(made["LoadBalancers"][0]["LoadBalancerArn"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.elbv2.describe_load_balancers(LoadBalancerArns=[identity])) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.elbv2.add_tags(ResourceArns=[identity], Tags=tag_list(new["tags"]))

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        row = aws.elbv2.describe_load_balancers(LoadBalancerArns=[identity])["LoadBalancers"][0]
        return {"arn": identity, "dnsName": row["DNSName"]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.elbv2.delete_load_balancer(LoadBalancerArn=identity)


class TargetGroup(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        health = i["healthCheck"]
        path = (
            {"HealthCheckPath": health["path"], "Matcher": {"HttpCode": health["matcher"]}} if "path" in health else {}
        )
        made = aws.elbv2.create_target_group(
            Name=i["name"], Protocol=i["protocol"], Port=number(i["port"]), VpcId=i["vpcId"],
            TargetType=i["targetType"],
            HealthCheckProtocol=health["protocol"], HealthCheckPort=health["port"],
            HealthCheckIntervalSeconds=number(health["interval"]),
            HealthyThresholdCount=number(health["healthyThreshold"]),
            UnhealthyThresholdCount=number(health["unhealthyThreshold"]), Tags=tag_list(i["tags"]), **path,
        )["TargetGroups"][0]["TargetGroupArn"]  # fmt: skip
        self._attributes(aws, made, i)
        return str(made)

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.elbv2.describe_target_groups(TargetGroupArns=[identity])) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.elbv2.add_tags(ResourceArns=[identity], Tags=tag_list(new["tags"]))
        self._attributes(aws, identity, new)

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": identity}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.elbv2.delete_target_group(TargetGroupArn=identity)

    def _attributes(self, aws: Aws, identity: str, i: Json) -> None:
        wanted = {"deregistration_delay.timeout_seconds": str(number(i["deregistrationDelay"]))}
        if i.get("preserveClientIp"):
            wanted["preserve_client_ip.enabled"] = i["preserveClientIp"]
        aws.elbv2.modify_target_group_attributes(TargetGroupArn=identity, Attributes=tag_list(wanted))


class Listener(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        actions = [{"Type": a["type"], "TargetGroupArn": a["targetGroupArn"]} for a in i["defaultActions"]]
        tls = (
            {"Certificates": [{"CertificateArn": i["certificateArn"]}], "SslPolicy": i["sslPolicy"]}
            if "certificateArn" in i
            else {}
        )
        made = aws.elbv2.create_listener(
            LoadBalancerArn=i["loadBalancerArn"], Port=number(i["port"]), Protocol=i["protocol"],
            DefaultActions=actions, Tags=tag_list(i["tags"]), **tls,
        )  # fmt: skip
        return str(made["Listeners"][0]["ListenerArn"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.elbv2.describe_listeners(ListenerArns=[identity])) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.elbv2.add_tags(ResourceArns=[identity], Tags=tag_list(new["tags"]))

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.elbv2.delete_listener(ListenerArn=identity)


KINDS: dict[str, Kind] = {
    "aws:ec2/launchTemplate:LaunchTemplate": LaunchTemplate(),
    "aws:ec2/placementGroup:PlacementGroup": Placement(),
    "aws:autoscaling/group:Group": Group(),
    "aws:autoscaling/schedule:Schedule": GroupSchedule(),
    "aws:iam/role:Role": Role(),
    "aws:iam/rolePolicy:RolePolicy": RolePolicy(),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Attachment(),
    "aws:iam/instanceProfile:InstanceProfile": Profile(),
    "aws:lb/loadBalancer:LoadBalancer": LoadBalancer(),
    "aws:lb/targetGroup:TargetGroup": TargetGroup(),
    "aws:lb/listener:Listener": Listener(),
}
