"""The engine's line protocol as pure functions: one line each way, token ids only, UTF-8, no newline inside.

To the engine:
    GEN <id> <max_new> [key=value ...] <token ids>    max_new -1 = up to the end of the context
    BGEN <slot> <max_new> [key=value ...] <token ids> the same, seated in that slot
    STOP <id> | BSTOP <slot>        end it
    YIELD <id> | BYIELD <slot>      a prompt being read gives way at its next chunk border
    VRAM <mib>                      experts take up to so much VRAM from now on
    PARK                            conversations that no request uses leave the pages for RAM (or disk)
    RESTORE <token ids>             what is held of them comes back, ready to go on with
    SAVE                            conversations that no request uses are written to disk
    CLEAR                           conversations that no request uses are kept no more, on disk neither
    EXPERTS                         where every expert is, and how much each is used
    STAT | QUIT
From the engine:
    INFO key=value ... | READY <ctx> <stop ids>
    INFO loading=<what> percent=<n>  before READY: how far it is
    REUSED <id> <n> <tier> | PP <id> <read> <total> | T <id> <token> [logprob [token:logprob ...]]
    YIELDED <id> <read>             before the DONE cancel of a read that gave way
    DONE <id> <stop/length/cancel/error> key=value ... [code=<code> text=<rest of the line>]
    BADM <slot> <1/0> | BT <slot> <token> [...] | BDONE <slot> <generated> <reason> <ms> | YIELDED <slot> <read>
    ERR <id or -> <code> <text> | STAT {json} | EXPERTS {json} | FATAL <text>
    KEPT <park/restore/save/clear/vram> key=count ...

Every GEN leads to exactly one DONE or one ERR with its id: ERR when it was refused, DONE (also DONE error) once it
was taken. A BGEN's id is its slot as `@<slot>`: PP, REUSED and ERR carry that, the rest is slot-addressed.
A deadline that passed is a DONE cancel code=deadline (before a BDONE cancel comes its ERR).
Keys are in KEYS, lower priorities go first. Without `stop` the stop ids of READY hold; `stop=` means none.
"""

from strata.engine.commands import (
    BAD_REQUEST,
    BUSY,
    CODES,
    DEADLINE,
    FAILED,
    KEYS,
    TOO_LONG,
    UNKNOWN,
    UNSUPPORTED,
    USAGE,
    Command,
    Gen,
    Keep,
    LineError,
    Quit,
    Stat,
    Stop,
    Yield,
    code_of,
    format_gen,
    parse_command,
)
from strata.engine.messages import (
    Admitted,
    Error,
    Experts,
    Fatal,
    Info,
    Kept,
    Message,
    Of,
    Ready,
    Status,
    format_admitted,
    format_error,
    format_event,
    format_experts,
    format_fatal,
    format_info,
    format_kept,
    format_ready,
    format_status,
    one_line,
    parse_event,
)

__all__ = [
    "BAD_REQUEST",
    "BUSY",
    "CODES",
    "DEADLINE",
    "FAILED",
    "KEYS",
    "TOO_LONG",
    "UNKNOWN",
    "UNSUPPORTED",
    "USAGE",
    "Admitted",
    "Command",
    "Error",
    "Experts",
    "Fatal",
    "Gen",
    "Info",
    "Keep",
    "Kept",
    "LineError",
    "Message",
    "Of",
    "Quit",
    "Ready",
    "Stat",
    "Status",
    "Stop",
    "Yield",
    "code_of",
    "format_admitted",
    "format_error",
    "format_event",
    "format_experts",
    "format_fatal",
    "format_gen",
    "format_info",
    "format_kept",
    "format_ready",
    "format_status",
    "one_line",
    "parse_command",
    "parse_event",
]
