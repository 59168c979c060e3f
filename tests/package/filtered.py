#!/usr/bin/env python3
"""filtered.py CALL,CALL,... COMMAND...: runs the command with no other system calls than these; the others fail with EPERM, as systemd's
SystemCallFilter= makes them. Names that the kernel or libseccomp does not know are left out."""
import ctypes
import os
import sys

ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001

seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(FAIL_WITH_EPERM)))
for name in sys.argv[1].split(","):
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        seccomp.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0)
if seccomp.seccomp_load(context) != 0:
    sys.exit("filtered.py: the filter was not loaded")
os.execvp(sys.argv[2], sys.argv[2:])
