#!/usr/bin/env python3
"""An HTTP server in one thread: the body of a POST, JSON numbers, becomes the model's input "data". As many requests as like are under way.

usage: asyncio_server.py MODEL PORT           curl -d '[[1, 2]]' http://127.0.0.1:PORT/
"""
import asyncio
import json
import sys

import numpy

import shoal

if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
    print("usage: asyncio_server.py MODEL PORT", file=sys.stderr)
    sys.exit(2)
model, port = sys.argv[1], int(sys.argv[2])
pool = shoal.Pool()
STATUS = {"INVALID_ARGUMENT": "400 Bad Request", "NOT_FOUND": "404 Not Found", "OVERLOADED": "429 Too Many Requests"}


async def answer(body):
    try:
        data = numpy.asarray(json.loads(body), numpy.float32)
        outputs = await pool.predict_async(model, {"data": data}, timeout=5)
        return "200 OK", {name: array.tolist() for name, array in outputs.items()}
    except shoal.Error as error:
        return STATUS.get(error.code, "503 Service Unavailable"), {"code": error.code, "message": str(error)}
    except ValueError as error:  # no JSON, or no numbers
        return STATUS["INVALID_ARGUMENT"], {"code": "INVALID_ARGUMENT", "message": str(error)}


async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next((int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:")), 0)
    status, answered = await answer(await reader.readexactly(length))
    text = json.dumps(answered).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print(f"serving {model} at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
