"""Stand-in: keys, buckets, registries, file systems, queues, schedules and budgets as calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .kind import Aws, Json, Kind, gone, number, pascal, tag_list, tags_from, whole


class Key(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        tags = [{"TagKey": k, "TagValue": v} for k, v in i["tags"].items()]
        made = str(aws.kms.create_key(Description=i["description"], Tags=tags)["KeyMetadata"]["KeyId"])
        aws.kms.enable_key_rotation(KeyId=made)
        return made

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        about = gone(lambda: aws.kms.describe_key(KeyId=identity)["KeyMetadata"])
        if not about or about["KeyState"] == "PendingDeletion":
            return None
        rows = aws.kms.list_resource_tags(KeyId=identity)["Tags"]
        rotates = aws.kms.get_key_rotation_status(KeyId=identity)["KeyRotationEnabled"]
        return {
            **i, "description": about["Description"], "enableKeyRotation": rotates,
            "tags": {r["TagKey"]: r["TagValue"] for r in rows},
        }  # fmt: skip

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.kms.tag_resource(KeyId=identity, Tags=[{"TagKey": k, "TagValue": v} for k, v in new["tags"].items()])
        if new["enableKeyRotation"]:
            aws.kms.enable_key_rotation(KeyId=identity)

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": aws.kms.describe_key(KeyId=identity)["KeyMetadata"]["Arn"], "keyId": identity}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.kms.schedule_key_deletion(KeyId=identity, PendingWindowInDays=number(i["deletionWindowInDays"]))


class Bucket(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        where = {"LocationConstraint": aws.region}
        aws.s3.create_bucket(
            Bucket=i["bucket"], **({} if aws.region == "us-east-1" else {"CreateBucketConfiguration": where})
        )
        self.update(aws, i["bucket"], {}, i)
        return str(i["bucket"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        if gone(lambda: aws.s3.head_bucket(Bucket=identity)) is None:
            return None
        rows = gone(lambda: aws.s3.get_bucket_tagging(Bucket=identity)["TagSet"])
        return {**i, "bucket": identity, "tags": tags_from(rows)}

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.s3.put_bucket_tagging(Bucket=identity, Tagging={"TagSet": tag_list(new["tags"])})

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": f"arn:aws:s3:::{identity}"}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.s3.delete_bucket(Bucket=identity)


class BucketSetting(Kind):
    """A setting of a bucket: putting it again overwrites it."""

    def __init__(self, put: Callable[[Aws, Json], Any], get: str, drop: str) -> None:
        self._put, self._get, self._drop = put, get, drop

    def create(self, aws: Aws, i: Json) -> str:
        self._put(aws, i)
        return str(i["bucket"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: getattr(aws.s3, self._get)(Bucket=identity)) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self._put(aws, new)

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        if self._drop:
            getattr(aws.s3, self._drop)(Bucket=identity)


def _private(aws: Aws, i: Json) -> None:
    settings = {k[:1].upper() + k[1:]: v for k, v in i.items() if k != "bucket"}
    aws.s3.put_public_access_block(Bucket=i["bucket"], PublicAccessBlockConfiguration=settings)


def _encryption(aws: Aws, i: Json) -> None:
    rules = []
    for rule in i["rules"]:
        by = rule["applyServerSideEncryptionByDefault"]
        how = {"SSEAlgorithm": by["sseAlgorithm"], "KMSMasterKeyID": by["kmsMasterKeyId"]}
        rules.append({"ApplyServerSideEncryptionByDefault": how, "BucketKeyEnabled": rule["bucketKeyEnabled"]})
    aws.s3.put_bucket_encryption(Bucket=i["bucket"], ServerSideEncryptionConfiguration={"Rules": rules})


def _lifecycle(aws: Aws, i: Json) -> None:
    rules = []
    for rule in whole(i["rules"]):
        rules.append(
            {
                "ID": rule["id"], "Status": rule["status"], "Filter": pascal(rule["filter"]),
                "NoncurrentVersionExpiration": pascal(rule["noncurrentVersionExpiration"]),
                "AbortIncompleteMultipartUpload": pascal(rule["abortIncompleteMultipartUpload"]),
            }
        )  # fmt: skip
    aws.s3.put_bucket_lifecycle_configuration(Bucket=i["bucket"], LifecycleConfiguration={"Rules": rules})


def _versioning(aws: Aws, i: Json) -> None:
    aws.s3.put_bucket_versioning(Bucket=i["bucket"], VersioningConfiguration=pascal(i["versioningConfiguration"]))


class Versioning(BucketSetting):
    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        found = gone(lambda: aws.s3.get_bucket_versioning(Bucket=identity))
        return None if found is None else {**i, "versioningConfiguration": {"status": found.get("Status", "Disabled")}}


class Registry(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        how = [{"encryptionType": e["encryptionType"], "kmsKey": e["kmsKey"]} for e in i["encryptionConfigurations"]]
        aws.ecr.create_repository(
            repositoryName=i["name"], imageTagMutability=i["imageTagMutability"], encryptionConfiguration=how[0],
            imageScanningConfiguration=i["imageScanningConfiguration"], tags=tag_list(i["tags"]),
        )  # fmt: skip
        return str(i["name"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        row = self._row(aws, identity)
        if row is None:
            return None
        rows = aws.ecr.list_tags_for_resource(resourceArn=row["repositoryArn"])["tags"]
        how = row["encryptionConfiguration"]
        return {
            **i, "name": row["repositoryName"], "imageTagMutability": row["imageTagMutability"],
            "tags": tags_from(rows),
            "encryptionConfigurations": [{"encryptionType": how["encryptionType"], "kmsKey": how.get("kmsKey")}],
            "imageScanningConfiguration": row["imageScanningConfiguration"],
        }  # fmt: skip

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        arn = (self._row(aws, identity) or {})["repositoryArn"]
        aws.ecr.tag_resource(resourceArn=arn, tags=tag_list(new["tags"]))
        aws.ecr.put_image_tag_mutability(repositoryName=identity, imageTagMutability=new["imageTagMutability"])

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        row = self._row(aws, identity) or {}
        return {"arn": row["repositoryArn"], "repositoryUrl": row["repositoryUri"]}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.ecr.delete_repository(repositoryName=identity, force=i["forceDelete"])

    def _row(self, aws: Aws, identity: str) -> Json | None:
        found = gone(lambda: aws.ecr.describe_repositories(repositoryNames=[identity])["repositories"])
        return found[0] if found else None


class Lustre(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        made = aws.fsx.create_file_system(
            FileSystemType="LUSTRE", StorageCapacity=number(i["storageCapacity"]), StorageType=i["storageType"],
            SubnetIds=[i["subnetIds"]], SecurityGroupIds=i["securityGroupIds"], KmsKeyId=i["kmsKeyId"],
            Tags=tag_list(i["tags"]),
            LustreConfiguration={
                "DeploymentType": i["deploymentType"], "DataCompressionType": i["dataCompressionType"],
                "PerUnitStorageThroughput": number(i["perUnitStorageThroughput"]),
            },
        )  # fmt: skip
        return str(made["FileSystem"]["FileSystemId"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.fsx.describe_file_systems(FileSystemIds=[identity])["FileSystems"]) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        rows = aws.fsx.describe_file_systems(FileSystemIds=[identity])["FileSystems"]
        aws.fsx.tag_resource(ResourceARN=rows[0]["ResourceARN"], Tags=tag_list(new["tags"]))

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.fsx.delete_file_system(FileSystemId=identity)


class Environment(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        """Moto asks for a service role; in an account the service has a linked one of its own."""
        r = whole(i["computeResources"])
        if gone(lambda: aws.iam.get_role(RoleName="standin-batch")) is None:
            aws.iam.create_role(RoleName="standin-batch", AssumeRolePolicyDocument="{}")
        made = aws.batch.create_compute_environment(
            computeEnvironmentName=i["name"], type=i["type"], state=i["state"], tags=i["tags"],
            serviceRole=f"arn:aws:iam::{aws.sts.get_caller_identity()['Account']}:role/standin-batch",
            computeResources={
                "type": r["type"], "allocationStrategy": r["allocationStrategy"], "minvCpus": r["minVcpus"],
                "maxvCpus": r["maxVcpus"], "instanceTypes": r["instanceTypes"], "subnets": r["subnets"],
                "securityGroupIds": r["securityGroupIds"], "instanceRole": r["instanceRole"], "tags": r["tags"],
                "launchTemplate": r["launchTemplate"],
            },
        )  # fmt: skip
        return str(made["computeEnvironmentArn"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        rows = aws.batch.describe_compute_environments(computeEnvironments=[identity])["computeEnvironments"]
        return {**i, "state": rows[0]["state"]} if rows else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.batch.update_compute_environment(computeEnvironment=identity, state=new["state"])

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": identity}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.batch.update_compute_environment(computeEnvironment=identity, state="DISABLED")
        aws.batch.delete_compute_environment(computeEnvironment=identity)


class JobQueue(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        order = [
            {"order": number(o["order"]), "computeEnvironment": o["computeEnvironment"]}
            for o in i["computeEnvironmentOrders"]
        ]
        made = aws.batch.create_job_queue(
            jobQueueName=i["name"], state=i["state"], priority=number(i["priority"]), computeEnvironmentOrder=order,
            tags=i["tags"],
        )  # fmt: skip
        return str(made["jobQueueArn"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if aws.batch.describe_job_queues(jobQueues=[identity])["jobQueues"] else None

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {"arn": identity}

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.batch.update_job_queue(jobQueue=identity, state="DISABLED")
        aws.batch.delete_job_queue(jobQueue=identity)


class JobDefinition(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        retry = {
            "attempts": number(i["retryStrategy"]["attempts"]),
            "evaluateOnExit": i["retryStrategy"]["evaluateOnExits"],
        }
        made = aws.batch.register_job_definition(
            jobDefinitionName=i["name"], type=i["type"], platformCapabilities=i["platformCapabilities"],
            containerProperties=json.loads(i["containerProperties"]), propagateTags=i["propagateTags"],
            retryStrategy=retry, timeout=whole(i["timeout"]), tags=i["tags"],
        )  # fmt: skip
        return str(made["jobDefinitionArn"])

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        rows = aws.batch.describe_job_definitions(jobDefinitions=[identity])["jobDefinitions"]
        return i if rows and rows[0].get("status") == "ACTIVE" else None

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.batch.deregister_job_definition(jobDefinition=identity)


class Schedule(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        aws.scheduler.create_schedule(Name=i["name"], **self._rest(i))
        return f"default/{i['name']}"

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        return i if gone(lambda: aws.scheduler.get_schedule(Name=i["name"])) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        aws.scheduler.update_schedule(Name=new["name"], **self._rest(new))

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.scheduler.delete_schedule(Name=i["name"])

    def _rest(self, i: Json) -> Json:
        target = i["target"]
        return {
            "ScheduleExpression": i["scheduleExpression"],
            "ScheduleExpressionTimezone": i["scheduleExpressionTimezone"],
            "FlexibleTimeWindow": pascal(i["flexibleTimeWindow"]),
            "Target": {"Arn": target["arn"], "RoleArn": target["roleArn"], "Input": target["input"]},
        }


class Budget(Kind):
    def create(self, aws: Aws, i: Json) -> str:
        account = aws.sts.get_caller_identity()["Account"]
        notices = [
            {
                "Notification": {
                    "NotificationType": n["notificationType"], "ComparisonOperator": n["comparisonOperator"],
                    "Threshold": n["threshold"], "ThresholdType": n["thresholdType"],
                },
                "Subscribers": [
                    {"SubscriptionType": "EMAIL", "Address": a} for a in n["subscriberEmailAddresses"]
                ],
            }
            for n in i["notifications"]
        ]  # fmt: skip
        aws.budgets.create_budget(
            AccountId=account,
            Budget={
                "BudgetName": i["name"], "BudgetType": i["budgetType"], "TimeUnit": i["timeUnit"],
                "BudgetLimit": {"Amount": i["limitAmount"], "Unit": i["limitUnit"]},
                "CostFilters": {f["name"]: f["values"] for f in i["costFilters"]},
            },
            NotificationsWithSubscribers=notices,
        )  # fmt: skip
        return f"{account}:{i['name']}"

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        account = identity.partition(":")[0]
        return i if gone(lambda: aws.budgets.describe_budget(AccountId=account, BudgetName=i["name"])) else None

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        self.delete(aws, identity, old)
        self.create(aws, new)

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        aws.budgets.delete_budget(AccountId=identity.partition(":")[0], BudgetName=i["name"])


def _policy(aws: Aws, i: Json) -> None:
    aws.s3.put_bucket_policy(Bucket=i["bucket"], Policy=i["policy"])


KINDS: dict[str, Kind] = {
    "aws:kms/key:Key": Key(),
    "aws:s3/bucket:Bucket": Bucket(),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": BucketSetting(
        _private, "get_public_access_block", "delete_public_access_block"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": Versioning(_versioning, "get_bucket_versioning", ""),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": BucketSetting(
        _encryption, "get_bucket_encryption", "delete_bucket_encryption"
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": BucketSetting(
        _lifecycle, "get_bucket_lifecycle_configuration", "delete_bucket_lifecycle"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": BucketSetting(_policy, "get_bucket_policy", "delete_bucket_policy"),
    "aws:ecr/repository:Repository": Registry(),
    "aws:fsx/lustreFileSystem:LustreFileSystem": Lustre(),
    "aws:batch/computeEnvironment:ComputeEnvironment": Environment(),
    "aws:batch/jobQueue:JobQueue": JobQueue(),
    "aws:batch/jobDefinition:JobDefinition": JobDefinition(),
    "aws:scheduler/schedule:Schedule": Schedule(),
    "aws:budgets/budget:Budget": Budget(),
}
