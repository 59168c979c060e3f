#!/usr/bin/env python3
"""Checks who includes whom: the rule of docs/design.md ("Who may include whom"), over the #include lines of the tree. Also checks
that no file of code, C++ or Python, is too long to be read.

usage: tools/check_layers.py [ROOT]      prints file:line and the rule for each violation; exit code 1 if there is one
"""
import re
import sys
from pathlib import Path

# Room of a file -> rooms it may include besides itself. The longest matching room counts.
SHM = ["shm/include", "shm/base", "shm/log", "shm/sandbox", "shm/tensor", "shm/completion", "shm/c", "shm/segment",
       "shm/model", "shm/wire"]
SUPERVISOR = ["supervisor/process", "supervisor/route", "supervisor/repository", "supervisor/catalog"]
WORKER = ["worker/graph", "worker/ops", "worker/passes", "worker/partition", "worker/import", "worker/exec"]
BACKEND = ["worker/graph", "worker/ops", "worker/passes", "worker/partition", "worker/exec"]  # nobody includes a backend
MAY_INCLUDE = {
    "shm/include": [],
    "shm/base": ["shm/include"],
    "shm/log": ["shm/include", "shm/base"],
    "shm/sandbox": ["shm/include", "shm/base"],
    "shm/tensor": ["shm/include", "shm/base"],
    "shm/completion": ["shm/include", "shm/base", "shm/tensor"],
    "shm/c": ["shm/include", "shm/base", "shm/tensor", "shm/completion"],
    "shm/segment": ["shm/include", "shm/base"],
    "shm/model": ["shm/include", "shm/base", "shm/tensor"],
    "shm/wire": ["shm/include", "shm/base", "shm/tensor", "shm/segment", "shm/model"],
    "supervisor/process": SHM,
    "supervisor/route": SHM,
    "supervisor/repository": SHM,
    "supervisor/catalog": SHM + ["supervisor/route"],
    "supervisor/plane": SHM + ["supervisor/process", "supervisor/route", "supervisor/catalog"],
    "supervisor/fleet": SHM + SUPERVISOR + ["supervisor/plane"],
    "supervisor/admin": SHM + SUPERVISOR + ["supervisor/plane", "supervisor/fleet"],
    "supervisor": SHM + SUPERVISOR + ["supervisor/plane", "supervisor/fleet", "supervisor/admin"],
    "worker/graph": SHM,
    "worker/ops": SHM + ["worker/graph"],
    "worker/passes": SHM + ["worker/graph", "worker/ops"],
    "worker/import": SHM + ["worker/graph", "worker/ops"],
    "worker/partition": SHM + ["worker/graph"],
    # A format: nobody includes it, except what makes files of that format or speaks for its programs. It registers itself.
    "worker/import/mxnet": SHM + ["worker/graph", "worker/ops", "worker/import"],
    "worker/exec": SHM + ["worker/graph", "worker/ops", "worker/passes", "worker/partition"],
    "worker/exec/cpu": SHM + BACKEND,
    "worker/exec/reference": SHM + BACKEND,
    "worker/zygote": SHM + WORKER + ["worker/serve", "worker/engine"],
    "worker/serve": SHM + WORKER,
    "worker/engine": SHM + WORKER,
    "worker": SHM + WORKER + ["worker/zygote", "worker/serve", "worker/engine"],
    "worker/c": SHM + ["worker/engine", "worker/import", "worker/import/mxnet"],
    # An extension for users of Engine and of MXNet's files, too.
    "client/python": SHM + ["client", "worker/graph", "worker/import", "worker/import/mxnet", "worker/engine"],
    "client": ["shm/include", "shm/base", "shm/tensor", "shm/completion", "shm/segment", "shm/wire"],
    # A library of its own, which runs models in this process or in the pool: nobody includes it.
    "client/predict": SHM + WORKER + ["worker/import/mxnet", "worker/engine", "client"],
    "client/c": ["shm/include", "shm/base", "shm/tensor", "shm/completion", "shm/c", "client"],
    "fetch": ["shm/include", "shm/base", "shm/sandbox", "shm/model", "shm/wire"],
    "tools": SHM + SUPERVISOR + ["supervisor", "supervisor/plane", "worker", "client",
                    "worker/engine", "worker/zygote", "worker/serve"] + WORKER,
    "tools/make_model": SHM + ["worker", "tools"] + WORKER + ["worker/import/mxnet"],
    "tests": None,  # everything
}
# Library header -> the one room whose files turn its errors into Status.
HOMES = {
    r"boost/interprocess/": "shm/segment",
    r"zmq\.h(pp)?$": "shm/wire",
    r"spdlog/": "shm/log",
    r"(oneapi/)?dnnl": "worker/exec/cpu",
    r"cu(da|dnn|blas)": "worker/exec/cuda",
    r"opencv2/": "client/vision",
    r"zlib\.h$": "worker/import",
    r"seccomp\.h$": "shm/sandbox",
    r"xxhash\.h$": "worker/graph",
    r"curl/": "fetch",
    r"openssl/": "fetch",
    r"pugixml\.hpp$": "fetch",
    r"cairo/": "tools/shoal/bench",
}
# What would put a lock, an allocator or a queue into memory that two processes can write: whoever dies holding it stops the others.
SHARED_STATE = re.compile(r"boost/interprocess/(?!mapped_region\.hpp|exceptions\.hpp)|PTHREAD_PROCESS_SHARED|\b(sem_open|shm_open|shmget)\b")
CPP = (".hpp", ".cpp", ".h", ".cu")
MAX_LINES = 500  # of a file of code
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def room_of(path, rooms):
    return max((r for r in rooms if path == r or path.startswith(r + "/")), key=len, default=None)


def target_of(included, is_quoted, public):
    """The path in the tree that an include names, or None when it is a library's."""
    if included in public:
        return public[included]
    return included if is_quoted else None


def violations(root):
    everything = [p for p in sorted(root.rglob("*"))
                  if p.relative_to(root).parts[0] in ("shm", "supervisor", "worker", "fetch", "client", "tools", "tests") and p.is_file()]
    files = [p for p in everything if p.suffix in CPP]
    public = {}
    for path in files:
        relative = path.relative_to(root).as_posix()
        for prefix in ("shoal/", "mxnet/"):
            if f"/include/{prefix}" in relative:
                public[prefix + relative.split(f"/include/{prefix}")[1]] = relative
    for path in everything:
        text = path.read_bytes()
        is_code = path.suffix in CPP + (".py",) or text.startswith(b"#!/usr/bin/env python3")
        if is_code and text.count(b"\n") > MAX_LINES:
            yield f"{path.relative_to(root)}:{MAX_LINES + 1}: a file of code has at most {MAX_LINES} lines; split it along its ideas"
    for path in files:
        relative = path.relative_to(root).as_posix()
        room = room_of(relative, MAY_INCLUDE)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if room != "tests" and SHARED_STATE.search(line):
                yield f"{relative}:{number}: nothing that is shared by processes may need repair when one of them dies"
            match = INCLUDE.match(line)
            if not match:
                continue
            where, included = f"{relative}:{number}", match[2]
            for library, home in HOMES.items():
                if re.match(library, included) and not relative.startswith((home + "/", "tests/", "tools/benchmarks/")):
                    yield f"{where}: <{included}> belongs in {home}"
            target = target_of(included, match[1] == '"', public)
            allowed = MAY_INCLUDE[room]
            if target is None or allowed is None:
                continue
            if not (root / target).exists():
                yield f'{where}: "{included}" is not written from the repository root'
                continue
            target_room = room_of(target, MAY_INCLUDE)
            if target_room != room and target_room not in allowed:
                yield f"{where}: {room} may not include {target_room} ({included})"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) or "check_layers: every file follows the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
