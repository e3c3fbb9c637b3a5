"""An engine child that answers by a script: `python fake_engine.py JSON`."""

import asyncio
import json
import os
import sys
from typing import Any

from strata.core.order import Order
from strata.engine.events import Event, Finished, Progress, Reason, Reused, Token
from strata.engine.protocol import (
    Gen,
    Keep,
    LineError,
    Quit,
    Stat,
    Stop,
    format_error,
    format_event,
    format_experts,
    format_fatal,
    format_info,
    format_kept,
    format_ready,
    format_status,
    parse_command,
)
from strata.engine.request import Request

DEFAULTS: dict[str, Any] = {
    "answers": [[65, 66, 67]],  # by seed
    "likelihoods": [-0.5],  # of their tokens, by seed
    "context": 512,
    "stop_ids": [0],
    "load_s": 0.0,
    "load_until": None,  # path of a file that ends the loading, which is at 43% until then
    "fail_load": False,
    "token_s": 0.0,
    "prompt_s": 0.0,
    "crash_after": None,  # tokens
    "fatal_after": None,
    "error_after": None,
    "crash_once": None,  # path of a file that remembers the crash
    "busy": False,
    "status": {},  # more of it
    "deaf": False,  # neither QUIT nor the end of input ends it
    "log": None,  # path of a file that gets every line read
    "pid": None,  # path of a file that gets the number of the process
}


EXPERTS: dict[str, Any] = {
    "layers": [0, 2],
    "experts": 3,
    "tier_names": {"0": "vram", "1": "pinned", "2": "host"},
    "in_tier": {"vram": 2, "pinned": 1, "host": 2},
    "uses_in_tier": {"vram": 60.0, "pinned": 20.0, "host": 20.0},
    "tiers": "AAECAAL/",
    "heat": "/4BAwAAA",
    "counted": True,
}
"""A map of layer 0 with three experts and layer 2 with two."""


def kept(order: Order) -> str:
    """The answer to an order: of VRAM whole blocks of 512 MiB, up to 4 GiB."""
    if order.verb == "experts":
        return format_experts(EXPERTS)
    if order.verb == "save":
        return format_kept("save", {"writing": 0, "left": 0})
    if order.mib > 4096:
        return format_error("-", "unsupported", f"{order.verb}: experts have no budget of VRAM here")
    return format_kept(order.verb, {"arena_mib": order.mib - order.mib % 512})


class Fake:
    def __init__(self, script: dict[str, Any]) -> None:
        self.script = DEFAULTS | script
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.served = 0

    def say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def status(self) -> dict[str, Any]:
        """As the engine's, as far as the server reads it."""
        return {
            "served": self.served,
            "running": len(self.tasks),
            "reading": 0,
            "waiting": 2,
            "queue_limit": 256,
            "queue": [],
            "context": self.script["context"],
            "slots": {"requested": 8, "serving": 4, "reason": "as much as fits"},
            "seats": [{"id": 0, "state": "idle", "held": 0}],
            "steps": 7,
            "failed_steps": 1,
            "sessions": {"submitted": 5, "refused": 1, "set_aside": 0, "finished": {"stop": 3}},
            "rows_per_step": {"1": 3, "2": 2, "40": 2},
            "decoding_per_step": {"1": 3, "2": 2, "0": 2},
            "tokens": {"prompt": 87, "reused": 13, "generated": 7, "drafted": 0, "accepted": 0},
            "drafts_by_depth": {"offered": {"1": 9, "2": 4}, "accepted": {"1": 6}},
            **self.script["status"],
        }

    def crash(self, number: int) -> None:
        script = self.script
        once = script["crash_once"]
        if once is not None and os.path.exists(once):
            return
        if number == script["crash_after"]:
            if once is not None:
                with open(once, "w"):
                    pass
            os._exit(9)
        if number == script["fatal_after"]:
            self.say(format_fatal("device lost"))
            os._exit(1)

    async def answer(self, request: Request) -> None:
        script = self.script
        prompt = len(request.tokens)

        def event(one: Event) -> None:
            self.say(format_event(request.id, one))

        answers = script["answers"]
        answer = answers[request.params.seed % len(answers)]
        made = 0
        reason = Reason.STOP
        error = ""
        try:
            event(Reused(2))
            event(Progress(prompt, prompt))
            await asyncio.sleep(script["prompt_s"])
            for token in answer:
                if token in request.stop_ids:
                    break
                if made == request.max_new:
                    reason = Reason.LENGTH
                    break
                self.crash(made)
                if made == script["error_after"]:
                    reason, error = Reason.ERROR, "not a number in the logits"
                    break
                want = request.params.logprobs
                likely = script["likelihoods"][request.params.seed % len(script["likelihoods"])]
                top = tuple((token + i, likely - i) for i in range(max(want, 0)))
                event(Token(token, likely if want >= 0 else None, top))
                made += 1
                await asyncio.sleep(script["token_s"])
        except asyncio.CancelledError:
            reason = Reason.CANCEL
        self.served += 1
        event(
            Finished(reason, prompt, 2, made, 4, 3, None, 0.001, 0.25, 0.5, "failed" if error else "", error),
        )
        self.tasks.pop(request.id, None)

    def handle(self, line: str) -> bool:
        if self.script["log"]:
            with open(self.script["log"], "a") as log:
                log.write(line + "\n")
        try:
            command = parse_command(line, tuple(self.script["stop_ids"]))
        except LineError as error:
            self.say(format_error(error.id, error.code, error.message))
            return True
        match command:
            case Gen(request) if self.script["busy"]:
                self.say(format_error(request.id, "busy", "64 requests wait already"))
            case Gen(request):
                self.tasks[request.id] = asyncio.create_task(self.answer(request))
            case Stop(name) if name in self.tasks:
                self.tasks[name].cancel()
            case Stop(name):
                self.say(format_error(name, "unknown", "no such request"))
            case Keep(order):
                self.say(kept(order))
            case Stat():
                self.say(format_status(self.status()))
            case Quit():
                return False
        return True

    async def run(self) -> None:
        if self.script["pid"]:
            with open(self.script["pid"], "w") as file:
                file.write(str(os.getpid()))
        await asyncio.sleep(self.script["load_s"])
        while self.script["load_until"] and not os.path.exists(self.script["load_until"]):
            self.say(format_info(loading="reading the model's file", percent=43))
            await asyncio.sleep(0.05)
        if self.script["fail_load"]:
            self.say(format_fatal("model.gguf: tensor x is cut short"))
            sys.exit(1)
        self.say(format_info(batch_slots=4, requested=4, reason="asked"))
        self.say(format_ready(self.script["context"], tuple(self.script["stop_ids"])))
        loop = asyncio.get_running_loop()
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            if not line or not self.handle(line.rstrip("\n")):
                if self.script["deaf"]:
                    await asyncio.sleep(1000)
                os._exit(0)


if __name__ == "__main__":
    asyncio.run(Fake(json.loads(sys.argv[1])).run())
