#!/usr/bin/env python3
"""tools/check_layers.py must find each kind of violation in a small tree that has them."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKER = Path(__file__).resolve().parent.parent / "tools" / "check_layers.py"
TREE = {
    "shm/include/shoal/status.hpp": "#pragma once\n",
    "shm/wire/socket.hpp": '#include <zmq.hpp>\n#include "shoal/status.hpp"\n',
    "worker/graph/graph.hpp": '#include "shm/wire/socket.hpp"\n',
    "supervisor/route/router.hpp": '#include "worker/graph/graph.hpp"\n',
    "client/src/pool.cpp": "#include <zmq.h>\n",
    "shm/segment/lock.cpp": "#include <boost/interprocess/sync/interprocess_mutex.hpp>\n",
    "worker/exec/cpu/conv.cpp": '#include <oneapi/dnnl/dnnl.hpp>\n#include "conv.hpp"\n',
    "worker/exec/cpu/onednn.hpp": "#pragma once\n",
    "worker/exec/model.cpp": '#include "worker/exec/cpu/onednn.hpp"\n',
    "worker/import/mxnet/format.hpp": "#pragma once\n",
    "worker/import/importer.cpp": '#include "worker/import/mxnet/format.hpp"\n',
    "client/predict/include/mxnet/c_predict_api.h": "#pragma once\n",
    "client/predict/src/list.cpp": '#include <mxnet/c_predict_api.h>\n#include "worker/import/mxnet/format.hpp"\n',
    "client/src/session.cpp": "#include <mxnet/c_predict_api.h>\n",
    "worker/exec/full.cpp": "\n" * 500,
    "worker/exec/long.cpp": "\n" * 501,
    "tests/long_test.py": "\n" * 501,
    "tools/long": "#!/usr/bin/env python3\n" + "\n" * 500,
    "tests/vectors/long.json": "\n" * 501,
}
EXPECTED = [
    "supervisor/route/router.hpp:1: supervisor/route may not include worker/graph",
    "client/src/pool.cpp:1: <zmq.h> belongs in shm/wire",
    "shm/segment/lock.cpp:1: nothing that is shared by processes may need repair",
    'worker/exec/cpu/conv.cpp:2: "conv.hpp" is not written from the repository root',
    "worker/exec/model.cpp:1: worker/exec may not include worker/exec/cpu",
    "worker/import/importer.cpp:1: worker/import may not include worker/import/mxnet",
    "client/src/session.cpp:1: client may not include client/predict",
    "worker/exec/long.cpp:501: a file of code has at most 500 lines",
    "tests/long_test.py:501: a file of code has at most 500 lines",
    "tools/long:501: a file of code has at most 500 lines",
]

with tempfile.TemporaryDirectory() as root:
    for name, text in TREE.items():
        path = Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True)
    found = run.stdout.splitlines()
    missing = [e for e in EXPECTED if not any(line.startswith(e) for line in found)]
    if run.returncode != 1 or missing or len(found) != len(EXPECTED):
        sys.exit(f"exit code {run.returncode}, missing {missing}, found:\n{run.stdout}{run.stderr}")
