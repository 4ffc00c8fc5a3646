"""The cost of waiting: what slow answers cost a month, as a range with its inputs.

    lost a month = visitors * share that uses the AI * value of a visitor * seconds * conversion lost a second

high: every second saved counts. low: at most one second does, since the loss a second is quoted for the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlift.errors import DeclarationError

# Assumption: the figure that is often quoted for web shops. It is not measured on the user's own visitors.
LOST_PER_SECOND = 0.07


@dataclass(frozen=True)
class Waiting:
    """Money in the currency of `value`, a month."""

    seconds_saved: float
    lost_share: float  # of the conversions of those who use the AI: seconds saved * lost a second, at most 1
    low: float
    high: float
    team: float  # hours that waiting costs the team, in both
    formula: str
    inputs: tuple[str, ...]


def cost_of_waiting(
    *,
    visitors: float,
    value: float,
    ai_share: float,
    seconds_now: float,
    seconds_then: float,
    lost_per_second: float = LOST_PER_SECOND,
    team_hours: float = 0.0,
    hour_cost: float = 0.0,
) -> Waiting:
    """`visitors` a month, `value` of one in money, `ai_share` of them who use the AI, an answer's seconds now and then.

    Raises DeclarationError for inputs that cannot be.
    """
    for name, amount in (("visitors", visitors), ("value", value), ("seconds", seconds_now), ("seconds", seconds_then),
                         ("lost per second", lost_per_second), ("team hours", team_hours),
                         ("cost of an hour", hour_cost)):  # fmt: skip
        if amount < 0:
            raise DeclarationError(f"{name} must not be negative: {amount:g}", why="the cost of waiting is asked for")
    if not 0 <= ai_share <= 1:
        raise DeclarationError(f"the share that uses the AI must lie between 0 and 1: {ai_share:g}", why="30 % is 0.3")
    saved = max(0.0, seconds_now - seconds_then)
    lost, least = min(1.0, saved * lost_per_second), min(1.0, min(saved, 1.0) * lost_per_second)
    money, team = visitors * ai_share * value, team_hours * hour_cost
    return Waiting(
        seconds_saved=saved,
        lost_share=lost,
        low=money * least + team,
        high=money * lost + team,
        team=team,
        formula=f"{visitors:g} visitors * {ai_share:.0%} * {value:g} = {money:g} a month at stake; "
        f"high: {saved:g} s * {lost_per_second:.1%} = {lost:.1%} of it; low: one second at most, {least:.1%}",
        inputs=(
            f"{visitors:g} visitors a month, {value:g} each, {ai_share:.0%} use the AI (declared)",
            f"{seconds_now:g} s now, {seconds_then:g} s then",
            f"assumption: {lost_per_second:.1%} of conversions lost a second (often quoted, not measured here)",
            f"team: {team_hours:g} h * {hour_cost:g}",
        ),
    )
