"""Checks whether hardware virtualization works, by running a few instructions in a guest.

The device /dev/kvm proves little: on some virtual machines it exists, and guests still die on an
instruction that the host emulates instead of running it. So the probe computes with the x87 unit,
which every processor has and no emulator of the kernel covers, and expects the right sum on an I/O
port.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

DEVICE: Final = Path("/dev/kvm")
_SECONDS: Final = 10.0
_API: Final = 12

_GET_API_VERSION: Final = 0xAE00
_CREATE_VM: Final = 0xAE01
_GET_VCPU_MMAP_SIZE: Final = 0xAE04
_CREATE_VCPU: Final = 0xAE41
_SET_USER_MEMORY_REGION: Final = 0x4020AE46
_RUN: Final = 0xAE80
_SET_REGS: Final = 0x4090AE82
_GET_SREGS: Final = 0x8138AE83
_SET_SREGS: Final = 0x4138AE84
_EXIT_IO: Final = 2
"""Value of exit_reason for an access to an I/O port."""

_MEMORY: Final = 0x10000
_START: Final = 0x1000
_PROGRAM: Final = bytes.fromhex(
    "dbe3"  # fninit
    "d9e8"  # fld1
    "d9e8"  # fld1
    "dec1"  # faddp
    "db1d00200000"  # fistp dword [0x2000]
    "a100200000"  # mov eax, [0x2000]
    "e610"  # out 0x10, al
    "f4"  # hlt
)
_PORT: Final = 0x10
_SUM: Final = 2
_CODE: Final = 11
_DATA: Final = 3
"""Types of segments: code that runs and is read, data that is read and written."""
_SREGS_SIZE: Final = 0x138
_SEGMENTS: Final = 6
_SEGMENT: Final = struct.Struct("<QIH10B")
_CR0: Final = 224
"""Where struct kvm_sregs has cr0."""
_PROTECTED: Final = 1


def kvm_works() -> bool:
    """Return whether a guest runs under KVM on this machine.

    On processors other than x86-64 a usable device counts as working. The trial runs in a process
    of its own, because a broken KVM may kill it or never return.
    """
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return False
    if platform.machine() != "x86_64":
        return True
    try:
        command = [sys.executable, "-I", str(Path(__file__).resolve())]
        return (
            subprocess.run(command, timeout=_SECONDS, check=False, capture_output=True).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def run_guest() -> bool:
    """Run the program in a virtual machine, and return whether it computed the sum.

    Raises:
        OSError: KVM refused a step.
    """
    kvm = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    if fcntl.ioctl(kvm, _GET_API_VERSION, 0) != _API:
        return False
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = mmap.mmap(-1, _MEMORY)
    memory[_START : _START + len(_PROGRAM)] = _PROGRAM
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    region = struct.pack("<IIQQQ", 0, 0, 0, _MEMORY, address)
    fcntl.ioctl(machine, _SET_USER_MEMORY_REGION, region)
    vcpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    state = mmap.mmap(vcpu, fcntl.ioctl(kvm, _GET_VCPU_MMAP_SIZE, 0))
    special = bytearray(_SREGS_SIZE)
    fcntl.ioctl(vcpu, _GET_SREGS, special)
    fcntl.ioctl(vcpu, _SET_SREGS, bytes(enter_protected_mode(special)))
    fcntl.ioctl(vcpu, _SET_REGS, struct.pack("<18Q", *[0] * 16, _START, 2))
    fcntl.ioctl(vcpu, _RUN, 0)
    return is_sum(state)


def enter_protected_mode(special: bytearray) -> bytearray:
    """Return the registers with flat 32-bit segments, in which all processors run natively."""
    for number in range(_SEGMENTS):
        kind, selector = (_CODE, 8) if number == 0 else (_DATA, 16)
        fields = (kind, 1, 0, 1, 1, 0, 1, 0, 0, 0)
        _SEGMENT.pack_into(special, number * _SEGMENT.size, 0, 0xFFFFFFFF, selector, *fields)
    (cr0,) = struct.unpack_from("<Q", special, _CR0)
    struct.pack_into("<Q", special, _CR0, cr0 | _PROTECTED)
    return special


def is_sum(state: mmap.mmap | bytes) -> bool:
    """Return whether a virtual processor wrote the sum to the port."""
    (reason,) = struct.unpack_from("<I", state, 8)
    if reason != _EXIT_IO:
        return False
    _, size, port, count, offset = struct.unpack_from("<BBHIQ", state, 32)
    return bool((size, port, count) == (1, _PORT, 1) and state[offset] == _SUM)


if __name__ == "__main__":
    try:
        sys.exit(0 if run_guest() else 1)
    except OSError as err:
        sys.exit(str(err))
