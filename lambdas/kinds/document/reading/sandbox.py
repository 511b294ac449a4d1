"""Takes from the process that reads hostile files what it does not need, on Linux. Elsewhere this does nothing.

The child has no environment of its own, but it runs as the same user as the function, which has credentials in its
environment, and Lambda serves events on loopback. So the function makes itself unreadable, and the child gives up
its capabilities and may open no socket. The sources are prctl(2), capabilities(7), proc(5) and seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import sys

_SET_DUMPABLE, _CAPBSET_DROP, _SET_SECCOMP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 4, 24, 22, 38, 47
_AMBIENT_CLEAR_ALL, _SECCOMP_MODE_FILTER, _CAPABILITY_VERSION_3 = 4, 2, 0x20080522
_MAX_CAPABILITIES = 64

# By machine: the architecture that the kernel reports to a filter, and the numbers of the refused system calls:
# socket, socketpair, io_uring_setup; ptrace, process_vm_readv, process_vm_writev, pidfd_getfd; execve, execveat.
_SYSTEM_CALLS = {
    "x86_64": (0xC000003E, (41, 53, 425, 101, 310, 311, 438, 59, 322)),
    "aarch64": (0xC00000B7, (198, 199, 425, 117, 270, 271, 438, 221, 281)),
}
_X32 = 0x40000000  # the other numbering of x86_64, so that no call has a second number
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_KILL, _ALLOW, _REFUSE = 0x80000000, 0x7FFF0000, 0x00050000 | errno.EPERM


def hide_process() -> None:
    """Other processes of the same user can no longer read this process's environment and memory."""
    if sys.platform == "linux":
        _prctl(_SET_DUMPABLE, 0)


def enter() -> None:
    """Give up all capabilities, new programs, sockets and other processes, for good.

    Sockets stay allowed where the kernel has no seccomp. Raises OSError if anything else is refused.
    """
    if sys.platform == "linux":
        _prctl(_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        _filter_system_calls()


def _drop_capabilities() -> None:
    """Root has all of them, and would get those of the bounding set back with the next program."""
    _prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, ignored=(errno.EINVAL,))  # kernels before 4.3 have none
    for capability in range(_MAX_CAPABILITIES):
        _prctl(_CAPBSET_DROP, capability, ignored=(errno.EINVAL, errno.EPERM))  # unknown; not root
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if _libc().capset(header, none):
        raise _last_error()


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def _filter_system_calls() -> None:
    if platform.machine() not in _SYSTEM_CALLS:
        return
    instructions = [_Instruction(*each) for each in _filter(*_SYSTEM_CALLS[platform.machine()])]
    program = _Program(len(instructions), (_Instruction * len(instructions))(*instructions))
    # EINVAL, ENOSYS: the kernel has no seccomp
    ignored = (errno.EINVAL, errno.ENOSYS)
    _prctl(_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program), ignored=ignored)


def _filter(architecture: int, refused: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """The instructions that refuse these calls with EPERM. Calls in another architecture's numbers kill."""
    checks = [(_JUMP_IF_AT_LEAST, len(refused) + 1, 0, _X32)]
    checks += [(_JUMP_IF_EQUAL, len(refused) - place, 0, number) for place, number in enumerate(refused)]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *checks,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _prctl(option: int, *arguments: int, ignored: tuple[int, ...] = ()) -> None:
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc().prctl(option, *values) and ctypes.get_errno() not in ignored:
        raise _last_error()


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
