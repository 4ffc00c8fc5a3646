"""The watch over a fleet at several sites: each is judged from its own monitor's history, and one that fails is named.

Nothing is averaged over sites: users of a site that fails are not served by another one that does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferlift.artifacts import Figure, Gate, Verdict, Watch
from inferlift.observe.review import Plan, old_bill


def joined(parts: Mapping[str, Watch], plan: Plan) -> Watch:
    """One verdict of all sites: what each found carries its site's name; costs are those of all together, and only
    they are held against the old bill. `parts`: by site, over the same time."""
    first = next(iter(parts.values()))
    gates = tuple(g.model_copy(update={"name": f"{site}: {g.name}"}) for site, w in parts.items() for g in w.gates)
    failed = [g for g in gates if g.verdict == "fail"]
    unclear = [g for g in gates if g.verdict == "inconclusive"]
    verdict: Verdict = "fail" if failed else "inconclusive" if unclear else "pass"
    figures = {f"{site}: {name}": f for site, w in parts.items() for name, f in w.figures.items()}
    figures |= _costs(parts)
    new = [w.replanned for w in parts.values() if w.replanned is not None]
    return Watch(
        start=first.start,
        end=first.end,
        gates=gates,
        figures=figures,
        series=tuple(s.model_copy(update={"name": f"{s.name}, {site}"}) for site, w in parts.items() for s in w.series),
        judgements=(
            *(j.model_copy(update={"name": f"{site}: {j.name}"}) for site, w in parts.items() for j in w.judgements),
            *old_bill(plan, figures, max(1.0, (first.end - first.start).total_seconds())),
        ),
        triggers=tuple(
            t.model_copy(update={"name": f"{site}: {t.name}"}) for site, w in parts.items() for t in w.triggers
        ),
        # every site has as many replicas: the busiest one decides
        replanned=max(new, key=lambda s: s.replicas + s.spare, default=None),
        verdict=verdict,
        why=f"all {len(gates)} gates of {len(parts)} sites hold"
        if verdict == "pass"
        else "; ".join(f"{g.name}: {g.why}" for g in failed or unclear),
    )


def unasked(like: Watch, why: str) -> Watch:
    """The part of a site whose monitor did not answer, beside one that was judged: no data, which never passes."""
    unknown = Figure(value=None, unit="share", basis="unknown", source=why, at=like.end.isoformat())
    gate = Gate(name="history", verdict="inconclusive", target=None, figure=unknown, why=f"no data ({why})")
    return Watch(start=like.start, end=like.end, gates=(gate,), figures={}, series=(), verdict="inconclusive", why=why)


def _costs(parts: Mapping[str, Watch]) -> dict[str, Figure]:
    """Of all sites together; unknown where that of one is."""
    spent = [w.figures.get("cost_so_far") for w in parts.values()]
    requests = [w.figures.get("requests") for w in parts.values()]
    known = [f for f in spent if f is not None and f.value is not None]
    if len(known) < len(parts):
        return {}
    total = sum(f.value or 0.0 for f in known)
    words = f"{len(parts)} sites together ({known[0].source} at the first)"
    found = {"cost_so_far": known[0].model_copy(update={"value": total, "source": words})}
    counts = [f.value for f in requests if f is not None and f.value is not None]
    answered = sum(counts)
    if len(counts) == len(parts) and answered:
        found["cost_per_1000_at_this_rate"] = Figure(
            value=1000 * total / answered, unit=f"{known[0].unit}/1000 requests", basis=known[0].basis,
            n=round(answered), at=known[0].at, source="cost so far over the requests answered, all sites together",
        )  # fmt: skip
    return found
