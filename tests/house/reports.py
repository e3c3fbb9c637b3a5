"""What went wrong for people who run such engines elsewhere, and what is not tested of it, with the reason.

One line each, by the number it has in the collection of public reports. A test that would be red with the fault names
the number in its docstring; test_reports.py holds both to each other.
"""

from collections.abc import Mapping

CONCURRENCY: Mapping[str, str] = {
    "O-001": "from three busy slots on, requests of a hybrid model read each other's recurrent state",
    "O-002": "the state of a request that runs is given to a later one",
    "O-025": "a client leaves while drafts are checked: its slot is never free again",
    "O-027": "a prompt larger than the pool of pages waits for ever",
    "O-028": "one long prompt freezes all streams for as long as it is read",
    "O-029": "a short newcomer waits for all that runs; or a long one for all that is short",
    "O-030": "a request that was cancelled while it waited is begun; a cancelled read goes on to its end",
    "O-031": "a request that waits goes on in another instance of the model",
    "O-032": "two slots halve the context of each",
    "O-033": "drafts force one slot, or more slots switch drafts off, silently",
    "O-034": "health is fine while every request hangs",
    "O-035": "requests for another model while one is loading block each other",
    "O-036": "an end while the model loads leaves a traceback, or a process",
    "O-037": "an internal error in one request ends them all",
    "O-066": "the client goes away, and its answer is made to the end of the context",
    "O-067": "one that leaves the queue ends the answer of another client",
    "O-068": "an error after the first byte is sent in a form that clients ignore",
    "O-069": "what is wrong with a streaming request is printed, and its stream never ends",
    "O-099": "logits that are no numbers become one token for ever",
}
"""Several requests at once: queue, slots, gaps, cancelling, stalls, ends."""

PROMPT_CACHE: Mapping[str, str] = {
    "O-009": "the state restored for a kept prefix is not the one at that position: chats drift",
    "O-010": "after a branch the position is kept and the state is not, or nothing is ever found again",
    "O-011": "kept prefixes and drafts together spoil answers, each alone does not",
    "O-012": "the same request again gives another answer, because it is read in other pieces",
    "O-013": "what is kept claims more tokens than were read",
    "O-014": "short prompts are never found again",
    "O-015": "what is kept is used from the third time on only",
    "O-016": "what was cleared stays allocated",
    "O-017": "an answer made anew throws away all that was kept",
    "O-018": "the same chat is written in other bytes and not found again",
}
"""What is kept of prompts."""

DIALECTS: Mapping[str, str] = {
    "O-062": "characters of several tokens stream as replacement marks",
    "O-063": "characters of several tokens break a call's arguments in a stream",
    "O-064": "the first part of a stop string that spans chunks is sent already",
    "O-065": "counts without choices are streamed to clients that did not ask for them",
    "O-070": "n answers are asked for and one is made",
    "O-071": "a limit on the answer is dropped, or reaching it is told as an end",
    "O-072": "histories without a user's turn fail where the template demands one",
    "O-073": "a turn without text or calls that an agent sends back ends the chat",
    "O-074": "a prefix of the answer is dropped when it is a list of parts",
    "O-075": "an image that is null or broken gives a 500, or kills a model of text",
    "O-076": "a bias for a token that is none crashes the engine for everybody",
    "O-077": "a penalty of 0 divides by it",
    "O-078": "reasoning is sent into a block of text, which clients refuse",
    "O-079": "tools of hosted services in a request to /v1/responses fail all of it",
    "O-080": "the same seed and prompt give another answer with every call",
    "O-081": "a malformed call after reasoning ends in a list of no calls",
    "O-082": "a call that is asked for by name is made or not, as with auto",
    "O-083": "of several calls in one answer only the first is recognised",
    "O-084": "a word in a parameter's description breaks the grammar of a call",
    "O-085": "a schema that cannot be enforced is ignored",
    "O-086": "the asked form is forced on the reasoning before it",
    "O-087": "a template opens the reasoning, so all of the answer goes to the content",
}
"""Wire dialects, streams, calls of tools and forms of answers (streams that break off stand above)."""

UX: Mapping[str, str] = {
    "O-105": "while the model loads, the port is closed, or requests hang or are answered as if it were there",
    "O-106": "weights are loaded for a minute, and only then it is said that the rest does not fit",
}
"""What people meet first."""

REPORTS: Mapping[str, str] = {**CONCURRENCY, **PROMPT_CACHE, **DIALECTS, **UX}
"""All that are held to a test; a class that is done is added here."""

WITHOUT_TEST: Mapping[str, str] = {}
"""Reports that no test names yet, and why."""
