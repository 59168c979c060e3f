#!/usr/bin/env python3
"""The smallest program: one request to the model "echo" of the local daemon.

SHOAL_DIR=/tmp/shoal shoald --model echo=builtin:identity &      SHOAL_DIR=/tmp/shoal ./hello.py
"""
import shoal

with shoal.Pool() as pool:  # errors are shoal.Error, and say what to do
    x = pool.loan("float32", (1, 4))  # in shared memory: no copy
    x[:] = [[42, 1, 2, 3]]
    y = pool.predict("echo", {"data": x})
    print(f"data_output: {y['data_output'][0, 0]:g}")
