"""One frozen answer to what goes where, and why.

Owns: Machine, Wishes, Plan with the reason of each choice.
May import: models and below (pure but for the probe).
Never: touches a device, except the probe.
"""
