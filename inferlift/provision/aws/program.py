"""The fleet on AWS as a Pulumi program: for each site a network, firewalls, storage, hosts and a front, or a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pulumi
import pulumi_aws as aws

from inferlift.artifacts.fleet import DesiredFleet
from inferlift.provision.aws import plan as planning
from inferlift.provision.aws.batch import Queue
from inferlift.provision.aws.front import Front
from inferlift.provision.aws.guards import Guards
from inferlift.provision.aws.hosts import Hosts
from inferlift.provision.aws.identity import HostIdentity
from inferlift.provision.aws.network import Firewalls, Network, has_front
from inferlift.provision.aws.scope import Scope
from inferlift.provision.aws.storage import SharedWeights, Storage


def fleet_program(
    desired: DesiredFleet, public_key: str, adopted: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """The program of a resolved document: account, zones and images are known, and nothing is looked up here.

    `adopted`: what holds data and exists though the state does not know it, as name in the program -> id.
    """
    plan = planning.of(desired)
    # Pulumi imports all of EC2's kinds for the first of them: seconds, in which the engine can start.
    loading = threading.Thread(target=_load, daemon=True)
    loading.start()

    def program() -> None:
        loading.join()
        providers: dict[str, aws.Provider] = {}
        for index, site in enumerate(plan.sites):
            if site.region not in providers:
                providers[site.region] = aws.Provider(site.region, region=aws.Region(site.region))
            scope = Scope(desired.label, plan, site, index, providers[site.region], dict(adopted or {}))
            _site(scope, desired, public_key)
            if index == 0:
                Guards(scope)

    return program


def _load() -> None:
    """A module of pulumi_aws is empty until it is asked for something."""
    for module, kind in (
        (aws.ec2, "Vpc"), (aws.iam, "Role"), (aws.s3, "Bucket"), (aws.lb, "LoadBalancer"), (aws.kms, "Key"),
        (aws.autoscaling, "Group"), (aws.ecr, "Repository"),
    ):  # fmt: skip
        getattr(module, kind)


def _site(scope: Scope, desired: DesiredFleet, public_key: str) -> None:
    plan = scope.plan
    network = Network(scope)
    firewalls = Firewalls(scope, network)
    storage = Storage(scope) if plan.store else None
    identity = HostIdentity(scope)
    if plan.batch is not None:
        if storage is None:
            raise ValueError("a queue needs the store: its jobs' image is in the registry")
        queue = Queue(scope, plan.batch, network, firewalls, identity, storage.registry_url)
        pulumi.export(scope.part("queue"), queue.queue_arn)
        return
    front = Front(scope, network, firewalls) if has_front(scope) else None
    groups = [entry for entry in planning.hosts(desired) if entry[1].site == scope.site.name]
    Hosts(scope, groups, network, firewalls, identity, public_key, front.targets if front else [])
    if storage and scope.settings.shared_weights_gb:
        SharedWeights(scope, network, firewalls.groups["model"], storage.key_arn)
    pulumi.export(scope.part("vpc"), network.vpc_id)
