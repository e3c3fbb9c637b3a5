"""Messages to tokens and back to typed events.

Owns: tokenizer, template sandbox, detokeniser, stop strings, reasoning and tool dialects.
May import: engine, checkpoint and below, without torch.
Never: knows HTTP.
"""
