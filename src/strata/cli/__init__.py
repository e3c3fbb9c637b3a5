"""One file per command.

Owns: arguments, output, exit codes.
May import: everything.
Never: decides anything.
"""
