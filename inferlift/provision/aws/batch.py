"""A queue of jobs on hosts that come when there is work and go when there is none."""

from __future__ import annotations

import json

import pulumi
from pulumi_aws import batch, ec2, iam, scheduler

from inferlift.artifacts.fleet import BatchQueue
from inferlift.provision.aws import naming
from inferlift.provision.aws.identity import HostIdentity, trusts
from inferlift.provision.aws.network import Firewalls, Network
from inferlift.provision.aws.scope import Scope


class Queue(pulumi.ComponentResource):
    """AWS Batch: compute environment, queue and job definition; a job whose host is taken away is queued again."""

    queue_arn: pulumi.Output[str]

    def __init__(
        self,
        scope: Scope,
        wanted: BatchQueue,
        network: Network,
        firewalls: Firewalls,
        identity: HostIdentity,
        registry_url: pulumi.Output[str],
    ) -> None:
        super().__init__("inferlift:aws:Queue", scope.part("batch"))
        self._scope = scope
        template = ec2.LaunchTemplate(
            scope.part("queue-template"),
            name=scope.name("queue"),
            update_default_version=True,
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=2
            ),
            block_device_mappings=[
                ec2.LaunchTemplateBlockDeviceMappingArgs(
                    device_name="/dev/xvda",
                    ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                        encrypted="true",
                        volume_type="gp3",
                        volume_size=scope.settings.root_gb,
                        delete_on_termination="true",
                    ),
                )
            ],
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=scope.tags("queue-host"))
                for kind in ("instance", "volume")
            ],
            tags=scope.tags("queue-template"),
            opts=scope.child(self),
        )
        spot = wanted.market == "spot"
        environment = batch.ComputeEnvironment(
            scope.part("queue-hosts"),
            name=scope.name("queue"),
            type="MANAGED",
            state="ENABLED",
            compute_resources=batch.ComputeEnvironmentComputeResourcesArgs(
                type="SPOT" if spot else "EC2",
                allocation_strategy="SPOT_PRICE_CAPACITY_OPTIMIZED" if spot else "BEST_FIT_PROGRESSIVE",
                min_vcpus=0,
                max_vcpus=wanted.max_vcpus,
                instance_types=list(wanted.instance_types),
                subnets=[network.private[zone] for zone in sorted(network.private)],
                security_group_ids=[firewalls.groups["queue"]],
                instance_role=identity.profile_arn,
                launch_template=batch.ComputeEnvironmentComputeResourcesLaunchTemplateArgs(
                    launch_template_id=template.id, version=template.latest_version.apply(str)
                ),
                tags=scope.tags("queue-host"),
            ),
            tags=scope.tags("queue-hosts"),
            opts=scope.child(self),
        )
        queue = batch.JobQueue(
            scope.part("queue"),
            name=scope.name("queue"),
            state="ENABLED",
            priority=1,
            compute_environment_orders=[
                batch.JobQueueComputeEnvironmentOrderArgs(order=1, compute_environment=environment.arn)
            ],
            tags=scope.tags("queue"),
            opts=scope.child(self),
        )
        self._definition(wanted, registry_url)
        if scope.plan.expires_at is not None:
            self._expiry(environment, scope.plan.expires_at)
        self.queue_arn = queue.arn
        self.register_outputs({"queue_arn": self.queue_arn})

    def _definition(self, wanted: BatchQueue, registry_url: pulumi.Output[str]) -> None:
        """Try again when the host was taken away; an error of the job itself is an error."""
        scope = self._scope

        def container(url: str) -> str:
            needs = [("VCPU", wanted.job_vcpus), ("MEMORY", wanted.job_memory_mib), ("GPU", wanted.job_gpus)]
            return json.dumps(
                {
                    "image": wanted.image or f"{url}:current",
                    "resourceRequirements": [{"type": kind, "value": str(n)} for kind, n in needs if n],
                    "readonlyRootFilesystem": False,
                    "privileged": False,
                }
            )

        batch.JobDefinition(
            scope.part("job"),
            name=scope.name("job"),
            type="container",
            platform_capabilities=["EC2"],
            container_properties=registry_url.apply(container),
            propagate_tags=True,
            retry_strategy=batch.JobDefinitionRetryStrategyArgs(
                attempts=wanted.retries,
                evaluate_on_exits=[
                    batch.JobDefinitionRetryStrategyEvaluateOnExitArgs(action="retry", on_status_reason="Host EC2*"),
                    batch.JobDefinitionRetryStrategyEvaluateOnExitArgs(action="exit", on_reason="*"),
                ],
            ),
            timeout=batch.JobDefinitionTimeoutArgs(attempt_duration_seconds=wanted.timeout_s),
            tags=scope.tags("job"),
            opts=scope.child(self),
        )

    def _expiry(self, environment: batch.ComputeEnvironment, at: str) -> None:
        """No new hosts from then on. AWS' own scheduler does it, with a role that can do nothing else."""
        scope = self._scope
        place = f"{scope.site.region}:{scope.account}"
        itself = f"arn:aws:batch:{place}:compute-environment/{scope.name('queue')}"
        role = iam.Role(
            scope.part("expiry-role"),
            name=scope.name("expiry"),
            path=naming.IAM_PATH,
            assume_role_policy=json.dumps(trusts("scheduler.amazonaws.com")),
            tags=scope.tags("expiry-role"),
            opts=scope.child(self),
        )
        rights = iam.RolePolicy(
            scope.part("expiry-rights"),
            name=scope.name("expiry"),
            role=role.name,
            policy=json.dumps(
                {
                    "Version": "2012-10-17",
                    "Statement": [{"Effect": "Allow", "Action": "batch:UpdateComputeEnvironment", "Resource": itself}],
                }
            ),
            opts=scope.child(self),
        )
        scheduler.Schedule(
            scope.part("expiry"),
            name=scope.name("expiry"),
            schedule_expression=f"at({at.removesuffix('Z')})",
            schedule_expression_timezone="UTC",
            flexible_time_window=scheduler.ScheduleFlexibleTimeWindowArgs(mode="OFF"),
            target=scheduler.ScheduleTargetArgs(
                arn="arn:aws:scheduler:::aws-sdk:batch:updateComputeEnvironment",
                role_arn=role.arn,
                input=json.dumps({"ComputeEnvironment": itself, "State": "DISABLED"}),
            ),
            opts=scope.child(self, depends_on=[rights, environment]),
        )
