#!/usr/bin/env python3
"""An HTTP server in one thread: the body of a POST, JSON numbers, becomes the model's input "data". As many requests as like are under way.

usage: asyncio_server.py MODEL PORT           curl -d '[[1, 2]]' http://127.0.0.1:PORT/
"""
import argparse
import asyncio
import json

import numpy

import shoal


def port_number(text):
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


parser = argparse.ArgumentParser()
parser.add_argument("model", metavar="MODEL", help="its name in the daemon")
parser.add_argument("port", metavar="PORT", type=port_number, help="of 127.0.0.1; 0: any that is free")
arguments = parser.parse_args()
pool = shoal.Pool()
STATUS = {"INVALID_ARGUMENT": "400 Bad Request", "NOT_FOUND": "404 Not Found", "OVERLOADED": "429 Too Many Requests"}


async def answer(body):
    try:
        data = numpy.asarray(json.loads(body), numpy.float32)
        outputs = await pool.predict_async(arguments.model, {"data": data}, timeout=5)
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
    server = await asyncio.start_server(serve, "127.0.0.1", arguments.port)
    print(f"serving {arguments.model} at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
