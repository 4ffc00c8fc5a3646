"""Stand-in: how the program's network resources become calls. Each kind creates, reads, updates and deletes."""

from __future__ import annotations

from typing import Any

from .kind import Aws, Json, Kind, gone, number, tag_list, tags_from

Tagged = list[dict[str, Any]]


class Ec2(Kind):
    """One EC2 resource that is described by id and tagged with it."""

    about: tuple[str, str, str, str]  # call that describes, its argument, the key of its answer, type of its tags

    def specs(self, i: Json) -> Tagged:
        return [{"ResourceType": self.about[3], "Tags": tag_list(i.get("tags"))}]

    def row(self, aws: Aws, identity: str) -> Json | None:
        call, argument, key, _ = self.about
        found = gone(lambda: getattr(aws.ec2, call)(**{argument: [identity]})[key])
        return found[0] if found else None

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        row = self.row(aws, identity)
        if row is None or str(row.get("State", "")).lower() in ("deleted", "deleting"):
            return None
        seen = {**i, **self.seen(aws, row, i)}
        if "tags" in i:
            seen["tags"] = tags_from(row.get("Tags"))
        return seen

    def seen(self, aws: Aws, row: Json, i: Json) -> Json:
        return {}

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.retag(identity, old.get("tags"), new.get("tags"))
        self.change(aws, identity, old, new)

    def change(self, aws: Aws, identity: str, old: Json, new: Json) -> None: ...


class Vpc(Ec2):
    about = ("describe_vpcs", "VpcIds", "Vpcs", "vpc")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_vpc(CidrBlock=i["cidrBlock"], TagSpecifications=self.specs(i))["Vpc"]["VpcId"]
        self.change(aws, made, {}, i)
        return str(made)

    def change(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsSupport={"Value": new["enableDnsSupport"]})
        aws.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsHostnames={"Value": new["enableDnsHostnames"]})

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_vpc(VpcId=identity)


class ClosedGroup(Ec2):
    """The VPC's own default group: adopted, emptied, never deleted."""

    about = ("describe_security_groups", "GroupIds", "SecurityGroups", "security-group")

    def create(self, aws: Aws, i: Json) -> str:
        own = [{"Name": "vpc-id", "Values": [i["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
        group = aws.ec2.describe_security_groups(Filters=own)["SecurityGroups"][0]
        identity = str(group["GroupId"])
        if group["IpPermissions"]:
            aws.ec2.revoke_security_group_ingress(GroupId=identity, IpPermissions=group["IpPermissions"])
        if group["IpPermissionsEgress"]:
            aws.ec2.revoke_security_group_egress(GroupId=identity, IpPermissions=group["IpPermissionsEgress"])
        aws.retag(identity, {}, i["tags"])
        return identity

    def delete(self, aws: Aws, identity: str, i: Json) -> None: ...


class InternetGateway(Ec2):
    about = ("describe_internet_gateways", "InternetGatewayIds", "InternetGateways", "internet-gateway")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_internet_gateway(TagSpecifications=self.specs(i))["InternetGateway"]
        aws.ec2.attach_internet_gateway(InternetGatewayId=made["InternetGatewayId"], VpcId=i["vpcId"])
        return str(made["InternetGatewayId"])

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.detach_internet_gateway(InternetGatewayId=identity, VpcId=i["vpcId"])
        aws.ec2.delete_internet_gateway(InternetGatewayId=identity)


class Subnet(Ec2):
    about = ("describe_subnets", "SubnetIds", "Subnets", "subnet")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_subnet(
            VpcId=i["vpcId"], CidrBlock=i["cidrBlock"], AvailabilityZone=i["availabilityZone"],
            TagSpecifications=self.specs(i),
        )  # fmt: skip
        return str(made["Subnet"]["SubnetId"])

    def change(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.ec2.modify_subnet_attribute(SubnetId=identity, MapPublicIpOnLaunch={"Value": new["mapPublicIpOnLaunch"]})

    def seen(self, aws: Aws, row: Json, i: Json) -> Json:
        return {"mapPublicIpOnLaunch": row["MapPublicIpOnLaunch"], "availabilityZone": row["AvailabilityZone"]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_subnet(SubnetId=identity)


class RouteTable(Ec2):
    about = ("describe_route_tables", "RouteTableIds", "RouteTables", "route-table")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_route_table(VpcId=i["vpcId"], TagSpecifications=self.specs(i))
        return str(made["RouteTable"]["RouteTableId"])

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_route_table(RouteTableId=identity)


class Route(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        # as AWS does, and moto does not: a second route for the same range is refused
        if self._row(aws, i) is not None:
            raise RuntimeError(f"RouteAlreadyExists: {i['destinationCidrBlock']} in {i['routeTableId']}")
        self._call(aws.ec2.create_route, i)
        return f"r-{i['routeTableId']}{i['destinationCidrBlock']}"

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if self._row(aws, i) is not None else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self._call(aws.ec2.replace_route, new)

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_route(RouteTableId=i["routeTableId"], DestinationCidrBlock=i["destinationCidrBlock"])

    def _call(self, call: Any, i: Json) -> None:
        way = {"GatewayId": i["gatewayId"]} if "gatewayId" in i else {"NatGatewayId": i["natGatewayId"]}
        call(RouteTableId=i["routeTableId"], DestinationCidrBlock=i["destinationCidrBlock"], **way)

    def _row(self, aws: Aws, i: Json) -> Json | None:
        tables = gone(lambda: aws.ec2.describe_route_tables(RouteTableIds=[i["routeTableId"]])["RouteTables"]) or []
        routes = [r for t in tables for r in t["Routes"] if r.get("DestinationCidrBlock") == i["destinationCidrBlock"]]
        return routes[0] if routes else None


class Association(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.associate_route_table(RouteTableId=i["routeTableId"], SubnetId=i["subnetId"])
        return str(made["AssociationId"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        tables = gone(lambda: aws.ec2.describe_route_tables(RouteTableIds=[i["routeTableId"]])["RouteTables"]) or []
        known = [a["RouteTableAssociationId"] for t in tables for a in t["Associations"]]
        return i if identity in known else None

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.disassociate_route_table(AssociationId=identity)


class Eip(Ec2):
    about = ("describe_addresses", "AllocationIds", "Addresses", "elastic-ip")

    def create(self, aws: Aws, i: Json) -> str:
        return str(aws.ec2.allocate_address(Domain=i["domain"], TagSpecifications=self.specs(i))["AllocationId"])

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        row = self.row(aws, identity)
        return {"publicIp": row["PublicIp"] if row else None, "allocationId": identity}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.release_address(AllocationId=identity)


class Nat(Ec2):
    about = ("describe_nat_gateways", "NatGatewayIds", "NatGateways", "natgateway")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_nat_gateway(
            SubnetId=i["subnetId"], AllocationId=i["allocationId"], TagSpecifications=self.specs(i)
        )
        return str(made["NatGateway"]["NatGatewayId"])

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_nat_gateway(NatGatewayId=identity)


class Endpoint(Ec2):
    about = ("describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints", "vpc-endpoint")

    def create(self, aws: Aws, i: Json) -> str:
        more: Json = {"RouteTableIds": i["routeTableIds"]} if i["vpcEndpointType"] == "Gateway" else {
            "SubnetIds": i["subnetIds"], "SecurityGroupIds": i["securityGroupIds"],
            "PrivateDnsEnabled": i["privateDnsEnabled"],
        }  # fmt: skip
        made = aws.ec2.create_vpc_endpoint(
            VpcId=i["vpcId"], ServiceName=i["serviceName"], VpcEndpointType=i["vpcEndpointType"],
            TagSpecifications=self.specs(i), **more,
        )  # fmt: skip
        return str(made["VpcEndpoint"]["VpcEndpointId"])

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_vpc_endpoints(VpcEndpointIds=[identity])


class SecurityGroup(Ec2):
    about = ("describe_security_groups", "GroupIds", "SecurityGroups", "security-group")

    def create(self, aws: Aws, i: Json) -> str:
        made = aws.ec2.create_security_group(
            GroupName=i["name"], Description=i["description"], VpcId=i["vpcId"], TagSpecifications=self.specs(i)
        )["GroupId"]
        self._rules(aws, made, {}, i)
        return str(made)

    def change(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self._rules(aws, identity, old, new)

    def seen(self, aws: Aws, row: Json, i: Json) -> Json:
        """A rule that somebody added shows as a rule that the program did not ask for."""
        known = _count(i.get("ingress"))
        there = sum(len(p["IpRanges"]) + len(p["UserIdGroupPairs"]) for p in row["IpPermissions"])
        if there == known:
            return {}
        return {"ingress": [*(i.get("ingress") or []), {"description": f"{there} rules instead of {known}"}]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ec2.delete_security_group(GroupId=identity)

    def _rules(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        row = self.row(aws, identity) or {}
        if row.get("IpPermissions"):
            aws.ec2.revoke_security_group_ingress(GroupId=identity, IpPermissions=row["IpPermissions"])
        if row.get("IpPermissionsEgress"):
            aws.ec2.revoke_security_group_egress(GroupId=identity, IpPermissions=row["IpPermissionsEgress"])
        for rules, call in (
            (new.get("ingress"), aws.ec2.authorize_security_group_ingress),
            (new.get("egress"), aws.ec2.authorize_security_group_egress),
        ):
            for rule in rules or []:
                call(GroupId=identity, IpPermissions=[_permission(identity, rule)])


def _permission(identity: str, rule: Json) -> Json:
    about = {"Description": rule["description"]} if rule.get("description") else {}
    groups = [*(rule.get("securityGroups") or []), *([identity] if rule.get("self") else [])]
    everything = rule["protocol"] == "-1"
    return {
        "IpProtocol": rule["protocol"],
        **({} if everything else {"FromPort": number(rule["fromPort"]), "ToPort": number(rule["toPort"])}),
        "IpRanges": [{"CidrIp": r, **about} for r in rule.get("cidrBlocks") or []],
        "UserIdGroupPairs": [{"GroupId": g, **about} for g in groups],
    }


def _count(rules: list[Json] | None) -> int:
    return sum(
        len(r.get("cidrBlocks") or []) + len(r.get("securityGroups") or []) + bool(r.get("self")) for r in rules or []
    )


KINDS: dict[str, Kind] = {
    "aws:ec2/vpc:Vpc": Vpc(),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": ClosedGroup(),
    "aws:ec2/internetGateway:InternetGateway": InternetGateway(),
    "aws:ec2/subnet:Subnet": Subnet(),
    "aws:ec2/routeTable:RouteTable": RouteTable(),
    "aws:ec2/route:Route": Route(),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Association(),
    "aws:ec2/eip:Eip": Eip(),
    "aws:ec2/natGateway:NatGateway": Nat(),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Endpoint(),
    "aws:ec2/securityGroup:SecurityGroup": SecurityGroup(),
}
