"""A classic BPF interpreter, for seccomp filters: checks tables that cannot run here."""

import struct

LD_ABS, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06


def run(code, arch, number, arguments=()):
    """The filter's verdict on a system call."""
    values = [value & 0xFFFFFFFFFFFFFFFF for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *values)
    accumulator = place = 0
    while True:
        operation, true, false, constant = code[place]
        place += 1
        if operation == LD_ABS:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == RET:
            return constant
        else:
            holds = {
                JEQ: accumulator == constant,
                JGE: accumulator >= constant,
                JSET: bool(accumulator & constant),
            }[operation]
            place += true if holds else false
