"""Who runs next, and the life of a request.

Owns: Request, Session, Slot, Admission, Scheduler, Engine, the line protocol, the Runner protocol.
May import: sampling.params, core.
Never: knows text, HTTP or tensors; imports torch.
"""
