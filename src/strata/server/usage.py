"""Counts and times of answers, in OpenAI's and llama.cpp's words."""

from collections.abc import Sequence
from typing import Any

from strata.chat.events import Done
from strata.engine.events import Reason

FINISH = {Reason.STOP: "stop", Reason.LENGTH: "length", Reason.CANCEL: "stop"}
"""finish_reason of an answer."""


def ending(done: Done) -> dict[str, Any]:
    """Fields of a choice that is over; a deadline has vLLM's field for what else ended it."""
    reason = "tool_calls" if done.calls and done.reason is not Reason.LENGTH else FINISH[done.reason]
    return {"finish_reason": reason, **({"stop_reason": "deadline"} if done.late else {})}


def usage(groups: Sequence[Sequence[Done]]) -> dict[str, Any]:
    """Token counts; each group is the answers to one prompt, which counts once."""
    prompt = sum(group[0].counts.prompt for group in groups)
    generated = sum(done.tokens for group in groups for done in group)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(group[0].counts.reused for group in groups)},
        "completion_tokens_details": {"reasoning_tokens": sum(done.thought for group in groups for done in group)},
    }


def timings(dones: Sequence[Done]) -> dict[str, Any]:
    """Times of one request's answers, added up; `*_per_second` leave out reused tokens and the first answer token."""
    prompt = sum(d.counts.prompt - d.counts.reused for d in dones)
    prompt_s = sum(d.counts.prompt_s for d in dones)
    tokens = sum(d.counts.generated for d in dones)
    decode_s = sum(d.counts.decode_s for d in dones)
    later = sum(max(d.counts.generated - 1, 0) for d in dones)
    return {
        "cache_n": sum(d.counts.reused for d in dones),
        "prompt_n": prompt,
        "prompt_ms": round(1000 * prompt_s, 3),
        "prompt_per_second": round(prompt / prompt_s, 3) if prompt_s else None,
        "predicted_n": tokens,
        "predicted_ms": round(1000 * decode_s, 3),
        "predicted_per_second": round(later / decode_s, 3) if decode_s else None,
        "queue_ms": round(1000 * sum(d.counts.queue_s for d in dones), 3),
        "predicted_steps": sum(d.counts.steps for d in dones),
        "draft_n": sum(d.counts.drafted for d in dones),
        "draft_n_accepted": sum(d.counts.accepted for d in dones),
    }
