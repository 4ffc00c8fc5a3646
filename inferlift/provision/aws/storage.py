"""Where weights, data and images are kept: a private, versioned, encrypted bucket, a registry, a shared file system.

None of it is deleted by a destroy: that takes --delete-data.
"""

from __future__ import annotations

import json

import pulumi
from pulumi_aws import ec2, ecr, fsx, kms, s3

from inferlift.provision.aws.network import Network
from inferlift.provision.aws.scope import Scope

LUSTRE_STEP_GB = 1200  # PERSISTENT_2 on SSD comes in 1200 GiB and multiples of 2400
LUSTRE_MB_PER_S = 250  # a second for each TiB


class Storage(pulumi.ComponentResource):
    """One key of its own for all of it."""

    key_arn: pulumi.Output[str]
    bucket_arn: pulumi.Output[str]
    registry_arn: pulumi.Output[str]
    registry_url: pulumi.Output[str]

    def __init__(self, scope: Scope) -> None:
        super().__init__("inferlift:aws:Storage", scope.part("storage"))
        self._scope = scope
        key = kms.Key(
            scope.part("key"),
            description=f"inferlift: weights and data of {scope.label}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            tags=scope.tags("key", data="keep"),
            opts=scope.keeping("key", self, "deletionWindowInDays"),
        )
        self.key_arn = key.arn
        self._bucket(key)
        self._registry(key)
        self.register_outputs({"bucket_arn": self.bucket_arn, "registry_url": self.registry_url})

    def _bucket(self, key: kms.Key) -> None:
        scope = self._scope
        bucket = s3.Bucket(
            scope.part("store"),
            bucket=scope.bucket,
            force_destroy=False,
            tags=scope.tags("store", data="keep"),
            opts=scope.keeping("store", self, "forceDestroy"),
        )
        s3.BucketPublicAccessBlock(
            scope.part("store-private"),
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=scope.keeping("store-private", self),
        )
        s3.BucketVersioning(
            scope.part("store-versions"),
            bucket=bucket.id,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=scope.keeping("store-versions", self),
        )
        s3.BucketServerSideEncryptionConfiguration(
            scope.part("store-encryption"),
            bucket=bucket.id,
            rules=[
                s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    apply_server_side_encryption_by_default=s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                        sse_algorithm="aws:kms", kms_master_key_id=key.arn
                    ),
                    bucket_key_enabled=True,
                )
            ],
            opts=scope.keeping("store-encryption", self),
        )
        s3.BucketLifecycleConfiguration(
            scope.part("store-lifecycle"),
            bucket=bucket.id,
            rules=[
                s3.BucketLifecycleConfigurationRuleArgs(
                    id="old-versions",
                    status="Enabled",
                    filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
                    noncurrent_version_expiration=s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                        noncurrent_days=30
                    ),
                    abort_incomplete_multipart_upload=s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                        days_after_initiation=7
                    ),
                )
            ],
            opts=scope.keeping("store-lifecycle", self),
        )
        s3.BucketPolicy(
            scope.part("store-tls-only"),
            bucket=bucket.id,
            policy=bucket.arn.apply(lambda arn: json.dumps(tls_only(arn))),
            opts=scope.keeping("store-tls-only", self),
        )
        self.bucket_arn = bucket.arn

    def _registry(self, key: kms.Key) -> None:
        scope = self._scope
        registry = ecr.Repository(
            scope.part("images"),
            name=scope.name("images"),
            image_tag_mutability="IMMUTABLE",
            force_delete=False,
            encryption_configurations=[
                ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=key.arn)
            ],
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            tags=scope.tags("images", data="keep"),
            opts=scope.keeping("images", self, "forceDelete"),
        )
        self.registry_arn, self.registry_url = registry.arn, registry.repository_url


class SharedWeights(pulumi.ComponentResource):
    """A file system that all model hosts read: weights are loaded once into it, not once into each host."""

    def __init__(self, scope: Scope, network: Network, models: pulumi.Output[str], key_arn: pulumi.Output[str]) -> None:
        super().__init__("inferlift:aws:SharedWeights", scope.part("shared-weights"))
        lustre = [
            ec2.SecurityGroupIngressArgs(
                protocol="tcp", from_port=low, to_port=high, security_groups=[models], description="Lustre"
            )
            for low, high in ((988, 988), (1018, 1023))
        ]
        itself = [
            ec2.SecurityGroupIngressArgs(protocol="tcp", from_port=low, to_port=high, self=True, description="itself")
            for low, high in ((988, 988), (1018, 1023))
        ]
        group = ec2.SecurityGroup(
            scope.part("lustre-firewall"),
            name=scope.name("lustre"),
            description="the shared file system, from model hosts",
            vpc_id=network.vpc_id,
            ingress=[*lustre, *itself],
            egress=[ec2.SecurityGroupEgressArgs(protocol="-1", from_port=0, to_port=0, self=True)],
            tags=scope.tags("lustre-firewall"),
            opts=scope.child(self),
        )
        fsx.LustreFileSystem(
            scope.part("lustre"),
            subnet_ids=network.private[scope.site.zones[0]],
            security_group_ids=[group.id],
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=lustre_gb(scope.settings.shared_weights_gb),
            per_unit_storage_throughput=LUSTRE_MB_PER_S,
            data_compression_type="NONE",
            kms_key_id=key_arn,
            tags=scope.tags("lustre", data="keep"),
            opts=scope.keeping("lustre", self, "securityGroupIds"),
        )
        self.register_outputs({})


def lustre_gb(wanted: int) -> int:
    """The next size that is sold: 1200 GiB, or a multiple of 2400."""
    return LUSTRE_STEP_GB if wanted <= LUSTRE_STEP_GB else -(-wanted // (2 * LUSTRE_STEP_GB)) * 2 * LUSTRE_STEP_GB


def tls_only(bucket_arn: str) -> dict[str, object]:
    """Nobody reads or writes the bucket without TLS."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [bucket_arn, f"{bucket_arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }
