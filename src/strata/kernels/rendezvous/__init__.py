"""Which experts of a call are computed where, and the encounter of GPU and CPU over those of the CPU.

Owns: the mailbox, the device kernels that fill it and wait for it, the thread that answers.
May import: quant, kernels, torch, numpy.
Never: decides what is resident or what is read over PCIe; it is told in tables.
"""
