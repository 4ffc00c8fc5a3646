"""The batching delay: how long to wait for a batch to fill so that the device keeps up and latency stays in bounds.

The result is what the server's configuration is told: Triton's preferred_batch_size and max_queue_delay_microseconds
(https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/batcher.html), vLLM's max_num_seqs and
max_num_batched_tokens (https://docs.vllm.ai/en/latest/configuration/optimization.html), llama.cpp's slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from inferlift.artifacts import Batching

COMFORTABLE = 0.7  # share of the time a device may be busy before larger batches are made for throughput
FULL = 0.95  # above this queues grow without end on any burst
NO_TARGET_DELAY_MS = 1000.0  # longest wait where nobody waits for the answer


def choose(
    arrivals_per_s: float, service_ms: Callable[[int], float], target_ms: float | None = None, *, max_batch: int = 64
) -> Batching:
    """Batch size and delay for one device (Triton) that serves `arrivals_per_s` items.

    `service_ms(b)` is the P95 time of a batch of b, alone. Of the batch sizes 1, 2, 4 ... `max_batch` whose P95 stays
    below `target_ms`, the smallest that keeps the device at most 70 % busy; else the one that keeps it least busy.
    Without a target the latency decides nothing. P95 = delay + wait for the device + service, where
    - delay = (b - 1) / arrivals, the mean time for the rest of the batch to arrive;
    - wait = S / (2 b (1 - u)) * ln(20 u), u = arrivals * S / b: Kingman's mean for full batches of Poisson arrivals
      (their gaps vary by 1/b, their service does not), its tail taken as exponential
      (https://en.wikipedia.org/wiki/Kingman%27s_formula). Simulated P95s are 0.7 to 1.04 times this.
    Raises ValueError unless arrivals, target, max_batch and every service time are above 0.
    """
    if arrivals_per_s <= 0 or max_batch < 1 or (target_ms is not None and target_ms <= 0):
        raise ValueError("arrivals, target and max_batch must be above 0")
    options = [_option(arrivals_per_s, service_ms, batch) for batch in _sizes(max_batch)]
    stable = [option for option in options if option.utilisation <= FULL]
    kept = [option for option in stable if target_ms is None or option.latency_ms <= target_ms]
    if kept:
        calm = [option for option in kept if option.utilisation <= COMFORTABLE]
        best = calm[0] if calm else min(kept, key=lambda option: option.utilisation)
    elif stable:
        best = min(stable, key=lambda option: option.latency_ms)
    else:
        best = min(options, key=lambda option: option.utilisation)
    overrun = best.utilisation > FULL
    return Batching(
        preferred_batch_size=best.batch,
        max_queue_delay_us=round(best.delay_ms * 1000),
        latency_ms=None if overrun else best.latency_ms,
        utilisation=best.utilisation,
        meets_target=False if overrun else None if target_ms is None else best.latency_ms <= target_ms,
        explain=(*_explained(arrivals_per_s, best, target_ms), *([_overrun(best)] if overrun else [])),
        settings={
            "max_batch_size": max_batch,
            "preferred_batch_size": best.batch,
            "max_queue_delay_microseconds": round(best.delay_ms * 1000),
        },
    )


def for_llm(
    kind: str,
    *,
    fits: int,
    needed: int,
    step_ms: Callable[[int], float] | None = None,
    prefill_ms_per_token: float | None = None,
    tpot_ms: float | None = None,
    context: int = 8192,
) -> Batching:
    """How many sequences a server with continuous batching decodes at once, and how many prompt tokens a step takes.

    `fits`: sessions that memory holds (memory.most_sessions); `needed`: in flight at the peak on one replica;
    `step_ms(n)`: one decoding step of n sequences; `tpot_ms`: the longest gap between tokens allowed (1000 /
    targets.min_tokens_per_s). Sequences = the least of fits, needed and the most whose step stays in the gap. Prompt
    tokens of a step = what is left of the gap over `prefill_ms_per_token`; without a gap or a rate 2048, vLLM's
    default for online serving. Raises ValueError unless fits, needed and context are at least 1.
    """
    if fits < 1 or needed < 1 or context < 1:
        raise ValueError("fits, needed and context must be at least 1")
    sequences, said = min(fits, needed), [f"sequences: least of {fits} (memory) and {needed} (in flight at the peak)"]
    met: bool | None = None
    gap: float | None = None
    if step_ms is not None:
        if tpot_ms is not None:
            allowed = _most(lambda n: step_ms(n) <= tpot_ms, sequences)
            met = allowed >= 1 and sequences <= allowed
            said.append(f"a step of {allowed} sequences stays within {tpot_ms:g} ms; {sequences} are wanted")
            sequences = max(1, min(sequences, allowed))
            met = step_ms(sequences) <= tpot_ms and met
        gap = step_ms(sequences)
        said.append(f"a step of {sequences}: {gap:.3g} ms")
    tokens = 2048
    if gap is not None and tpot_ms is not None and prefill_ms_per_token:
        left = max(0.0, tpot_ms - gap)
        tokens = int(left / prefill_ms_per_token)
        said.append(f"prompt tokens a step: ({tpot_ms:g} - {gap:.3g} ms) / {prefill_ms_per_token:.3g} ms = {tokens}")
    if sequences < needed:
        said.append(f"{needed - sequences} of {needed} in flight wait for a place: more replicas, or a longer gap")
    tokens = max(sequences + 128, min(tokens, context * sequences, 16384))
    return Batching(
        preferred_batch_size=sequences,
        max_queue_delay_us=0,  # a running batch takes new sequences at every step: nobody waits for it to fill
        max_sequences=sequences,
        max_batched_tokens=tokens,
        latency_ms=gap,
        utilisation=None,  # of a device that always runs a step there is none
        meets_target=met,
        explain=tuple(said),
        settings=_LLM_SETTINGS.get(kind, _none)(sequences, tokens),
    )


class _Option:
    def __init__(self, batch: int, delay_ms: float, service_ms: float, utilisation: float) -> None:
        self.batch, self.delay_ms, self.service_ms, self.utilisation = batch, delay_ms, service_ms, utilisation
        self.wait_ms = (
            math.inf
            if utilisation >= 1
            else service_ms / (2 * batch * (1 - utilisation)) * max(0.0, math.log(20 * utilisation))
            if utilisation > 0
            else 0.0
        )
        self.latency_ms = delay_ms + self.wait_ms + service_ms


def _option(arrivals: float, service_ms: Callable[[int], float], batch: int) -> _Option:
    took = service_ms(batch)
    if not took > 0:
        raise ValueError(f"the service time of a batch of {batch} must be above 0, got {took}")
    delay = min((batch - 1) / arrivals * 1000, NO_TARGET_DELAY_MS)
    # where the wait is cut short, fewer arrive in it
    filled = batch if delay < NO_TARGET_DELAY_MS else min(batch, max(1, int(1 + arrivals * delay / 1000)))
    return _Option(batch, delay, took, arrivals * service_ms(filled) / 1000 / filled)


def _sizes(most: int) -> list[int]:
    sizes = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return sizes if sizes[-1] == most else [*sizes, most]


def _explained(arrivals: float, best: _Option, target_ms: float | None) -> tuple[str, ...]:
    target = f"; target {target_ms:g} ms" if target_ms is not None else ""
    if math.isinf(best.wait_ms):
        return (
            f"batch of {best.batch}: {best.service_ms:.3g} ms, {arrivals:g}/s * {best.service_ms:.3g} ms / {best.batch}"
            f" = {best.utilisation:.0%} busy: the queue grows without end{target}",
        )
    return (
        f"batch of {best.batch}: {best.service_ms:.3g} ms, {arrivals:g}/s * {best.service_ms:.3g} ms / {best.batch}"
        f" = {best.utilisation:.0%} busy",
        f"P95: {best.delay_ms:.3g} ms for the batch to fill + {best.wait_ms:.3g} ms for the device"
        f" + {best.service_ms:.3g} ms = {best.latency_ms:.3g} ms{target}",
    )


def _overrun(best: _Option) -> str:
    devices = math.ceil(best.utilisation / COMFORTABLE)
    return f"one device cannot carry this: {best.utilisation:.0%} busy; {devices} would be {COMFORTABLE:.0%} busy"


def _most(allowed: Callable[[int], bool], limit: int) -> int:
    """The largest n up to `limit` that is allowed, if being allowed ends somewhere and does not come back; else 0."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle - 1)
    return low


def _none(sequences: int, tokens: int) -> dict[str, int]:
    return {}


_LLM_SETTINGS: dict[str, Callable[[int, int], dict[str, int]]] = {
    "vllm": lambda sequences, tokens: {"max_num_seqs": sequences, "max_num_batched_tokens": tokens},
    "llamacpp": lambda sequences, tokens: {"slots": sequences, "batch_size": tokens},
}
