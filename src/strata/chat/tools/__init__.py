"""Tool-call dialects, one file each.

Owns: reading one dialect's tool calls out of text, and the grammar of a forced call.
May import: chat.calls, chat.call_reader, chat.json_text, core.
Never: imports another dialect.
"""
