"""What every component is given: whose it is, in which site, and how names, tags and options are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pulumi

from inferlift.artifacts.fleet import AwsPlan, AwsSettings, AwsSite
from inferlift.provision.aws import naming

if TYPE_CHECKING:
    import pulumi_aws as aws


@dataclass(frozen=True)
class Scope:
    """One site of one fleet. Resources of further sites carry the site's number in their names."""

    label: str
    plan: AwsPlan
    site: AwsSite
    index: int
    provider: aws.Provider
    adopted: dict[str, str] = field(default_factory=dict)  # name in the program -> id, of data that exists already

    @property
    def settings(self) -> AwsSettings:
        return self.plan.settings

    @property
    def account(self) -> str:
        if self.plan.account is None:
            raise ValueError("the account is not known yet: resolve the document first")
        return self.plan.account

    @property
    def bucket(self) -> str:
        return naming.bucket_name(f"{self.label} {self.site.name}", self.account)

    def part(self, what: str) -> str:
        """The resource's name in the program: unique in the stack, and its tag in AWS."""
        return what if self.index == 0 else f"s{self.index}-{what}"

    def name(self, what: str) -> str:
        """The resource's name in AWS."""
        return naming.named(self.label, self.part(what))

    def tags(self, what: str, **known: str) -> dict[str, str]:
        return naming.tags(self.label, self.part(what), self.settings.tags, site=self.site.name, **known)

    def child(self, parent: pulumi.Resource, **more: object) -> pulumi.ResourceOptions:
        """Options of a resource inside a component."""
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions(parent=parent, provider=self.provider),
            pulumi.ResourceOptions(**more),  # type: ignore[arg-type]
        )

    def keeping(self, what: str, parent: pulumi.Resource, *unread: str) -> pulumi.ResourceOptions:
        """Options of what holds data: a destroy takes it out of the state and leaves it in AWS; found again, it is
        adopted. `unread`: inputs that AWS does not tell, and that an adoption thus cannot compare.
        """
        existing = self.adopted.get(self.part(what))
        if existing is None:
            return self.child(parent, retain_on_delete=True)
        return self.child(parent, retain_on_delete=True, import_=existing, ignore_changes=list(unread))
