"""What tells of spending: a budget over everything that carries the fleet's tag."""

from __future__ import annotations

import pulumi
from pulumi_aws import budgets

from inferlift.provision.aws import naming
from inferlift.provision.aws.scope import Scope

WARN_AT = (80.0, 100.0)  # percent of the budget, spent


class Guards(pulumi.ComponentResource):
    """AWS counts a tag's costs once the tag is activated in the account's billing console: `doctor` says so."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("inferlift:aws:Guards", scope.part("guards"))
        limit, email = scope.plan.budget_usd, scope.settings.budget_email
        if limit is not None and email is not None:
            budgets.Budget(
                scope.part("budget"),
                name=scope.name("budget"),
                budget_type="COST",
                time_unit="MONTHLY",
                limit_amount=f"{limit:.2f}",
                limit_unit="USD",
                cost_filters=[
                    budgets.BudgetCostFilterArgs(name="TagKeyValue", values=[f"user:{naming.OWNER}${scope.label}"])
                ],
                notifications=[
                    budgets.BudgetNotificationArgs(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                        subscriber_email_addresses=[email],
                    )
                    for kind, percent in (*(("ACTUAL", p) for p in WARN_AT), ("FORECASTED", 100.0))
                ],
                tags=scope.tags("budget"),
                opts=scope.child(self),
            )
        self.register_outputs({})
