"""Calls to AWS: one client a service and region, and errors as ours: what happened, and what to do next.

Credentials, profile and endpoint are boto3's own to find (AWS_PROFILE, AWS_ENDPOINT_URL, ...); none is read here.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from inferlift.errors import CheckFailed, DeclarationError, InferliftError, NoCapacity, Refusal, Retryable
from inferlift.provision.aws.tables import error_kind

SIGN_IN = "aws sso login (or aws configure, or set AWS_PROFILE); then ./invoke doctor --target aws"
TIMES = 5  # tries of a call that was throttled, with growing waits between


class Session:
    """Clients by service and region, made once each. Every call made is noted in `calls` as service:Operation."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Any] = {}
        self._boto: Any = None  # of its own: the shared one would keep credentials of an earlier sign-in
        self._regions: list[str] = []
        self.calls: set[str] = set()

    def client(self, service: str, region: str) -> Any:
        key = (service, region)
        if key not in self._clients:
            self._known(region)
            botocore: Any = import_module("botocore.config")
            config = botocore.Config(
                retries={"mode": "standard", "max_attempts": TIMES}, connect_timeout=10, read_timeout=60,
                user_agent_extra="inferlift",
            )  # fmt: skip
            made = self._boto.client(service, region_name=region, config=config)
            made.meta.events.register("before-call", self._note)
            self._clients[key] = made
        return self._clients[key]

    def pages(self, service: str, region: str, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        """All items of a listing, over all its pages."""
        client = self.client(service, region)
        if not client.can_paginate(operation):
            return list(getattr(client, operation)(**arguments)[key])
        return [item for page in client.get_paginator(operation).paginate(**arguments) for item in page[key]]

    def account(self, region: str) -> tuple[str, str]:
        """The account's twelve digits and who we are in it."""
        with calling("who am I", region):
            me = self.client("sts", region).get_caller_identity()
        return str(me["Account"]), str(me["Arn"])

    def _known(self, region: str) -> None:
        """A mistyped region would else be a name that no DNS knows, found out after minutes of trying."""
        boto3: Any = import_module("boto3.session")  # no types are published for it
        self._boto = self._boto or boto3.Session()
        if not self._regions:
            self._regions = [
                name for partition in self._boto.get_available_partitions()
                for name in self._boto.get_available_regions("ec2", partition_name=partition)
            ]  # fmt: skip
        if region not in self._regions:
            near = difflib.get_close_matches(region, self._regions, 1)
            raise DeclarationError(
                f"AWS has no region {region}" + (f"; did you mean {near[0]}?" if near else ""),
                next_command="correct aws.region, aws.edge or operations.regions",
            )

    def _note(self, model: Any, **_: Any) -> None:
        self.calls.add(f"{model.service_model.service_name}:{model.name}")


@contextlib.contextmanager
def calling(what: str, place: str) -> Iterator[None]:
    """AWS' errors as ours. Raises Refusal, NoCapacity, Retryable, DeclarationError or CheckFailed."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        raise as_ours(error, what, place) from None
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        raise Refusal(
            "there are no credentials for AWS",
            why=str(error),
            next_command=SIGN_IN,
        ) from None
    except (
        exceptions.SSOError, exceptions.LoginError, exceptions.TokenRetrievalError, exceptions.CredentialRetrievalError,
    ) as error:  # fmt: skip
        raise _not_signed_in(str(error)) from None  # a sign-in that ended, a helper that gives nothing
    except exceptions.NoRegionError as error:
        raise DeclarationError("no region is given", why=str(error)) from None
    except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
        raise Retryable(
            f"AWS does not answer: {what} in {place}",
            why=str(error),
            next_command="see that this machine reaches AWS (network, HTTPS_PROXY), then the same command again",
        ) from None
    except exceptions.BotoCoreError as error:
        raise CheckFailed(f"{what} in {place} was not sent", why=str(error)) from None


def code_of(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def as_ours(error: Any, what: str, place: str) -> InferliftError:
    """One refused call as an error of ours: the kind decides whether another place may help."""
    code = code_of(error)
    why = f"{code}: {error.response.get('Error', {}).get('Message', '')}"
    kind = error_kind(code)
    if kind == "no capacity":
        return NoCapacity(f"{what}: AWS has none in {place} now", why=why)
    if kind == "quota":
        return Refusal(
            f"{what}: a quota of the account is used up in {place}",
            why=why,
            next_command="./invoke doctor --target aws names the quota and how to ask for more",
        )
    if kind == "credentials":
        return _not_signed_in(why)
    if kind == "permission":
        return Refusal(
            f"{what} in {place} is not allowed", why=why, next_command="docs/aws.md: the rights that are needed"
        )
    if kind == "throttled":
        return Retryable(f"{what} in {place}: AWS asks to slow down", why=why)
    if kind == "bad request":
        return DeclarationError(f"{what} in {place}: AWS does not take the request", why=why)
    return CheckFailed(f"{what} in {place} failed with a code that is not known here", why=why)


def _not_signed_in(why: str) -> Refusal:
    return Refusal("the credentials for AWS are not valid, or not any more", why=why, next_command=SIGN_IN)
