"""Errors of boto3's own, before or instead of an answer of AWS', as ours: whole kinds, not single names."""

from __future__ import annotations

import pytest
from botocore import exceptions

from inferlift.dns.route53 import Route53
from inferlift.errors import CheckFailed, InferliftError, Refusal, Retryable
from inferlift.provision.aws.session import as_ours, calling

URL = "https://ec2.eu-central-1.amazonaws.com"
CASES: list[tuple[Exception, type[InferliftError], str]] = [
    (exceptions.NoCredentialsError(), Refusal, "there are no credentials"),
    (exceptions.ProfileNotFound(profile="nope"), Refusal, "there are no credentials"),
    (exceptions.PartialCredentialsError(provider="env", cred_var="key"), Refusal, "there are no credentials"),
    (exceptions.SSOTokenLoadError(error_msg="expired"), Refusal, "not valid, or not any more"),
    (exceptions.UnauthorizedSSOTokenError(), Refusal, "not valid, or not any more"),
    (exceptions.TokenRetrievalError(provider="sso", error_msg="refresh failed"), Refusal, "not valid, or not any more"),
    (
        exceptions.CredentialRetrievalError(provider="process", error_msg="exit 1"),
        Refusal,
        "not valid, or not any more",
    ),
    (exceptions.LoginRefreshRequired(), Refusal, "not valid, or not any more"),
    (exceptions.EndpointConnectionError(endpoint_url=URL), Retryable, "does not answer"),
    (exceptions.ConnectTimeoutError(endpoint_url=URL), Retryable, "does not answer"),
    (exceptions.ReadTimeoutError(endpoint_url=URL), Retryable, "does not answer"),
    (exceptions.ConnectionClosedError(endpoint_url=URL), Retryable, "does not answer"),
    (exceptions.ProxyConnectionError(proxy_url="http://proxy"), Retryable, "does not answer"),
    (exceptions.SSLError(endpoint_url=URL, error="unknown CA"), Retryable, "does not answer"),
    (exceptions.InvalidConfigError(error_msg="x"), CheckFailed, "was not sent"),
]


@pytest.mark.parametrize(("error", "kind", "words"), CASES, ids=[type(c[0]).__name__ for c in CASES])
def test_what_never_reached_aws_says_why_and_what_next(
    error: Exception, kind: type[InferliftError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught, calling("who am I", "eu-central-1"):
        raise error
    if kind is Refusal:
        assert "aws sso login" in caught.value.next_command


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestExpired"])
def test_credentials_that_aws_takes_no_more(code: str) -> None:
    error = exceptions.ClientError({"Error": {"Code": code, "Message": "m"}}, "GetCallerIdentity")
    ours = as_ours(error, "who am I", "eu-central-1")
    assert isinstance(ours, Refusal)
    assert "aws sso login" in ours.next_command


@pytest.mark.parametrize("error", [c[0] for c in CASES[:8]], ids=[type(c[0]).__name__ for c in CASES[:8]])
def test_route_53_says_the_same_of_credentials(error: Exception) -> None:
    class Client:
        def list_resource_record_sets(self, **_: object) -> object:
            raise error

    back = Route53(
        "Z1", "demo.test", names=["a.demo.test"], addresses=["192.0.2.1"], owner="o", run="r", client=Client()
    )
    with pytest.raises(Refusal, match="no AWS credentials here that are valid"):
        back.read("a.demo.test")
