"""Runs llama.cpp's server, in an environment of its own. `upstreams` starts it. Imports nothing of ours.

    python llama.py MODEL_FILE

Prints the server's URL when the model is loaded. Ends when its standard input is closed.
"""

from __future__ import annotations

import os
import sys

import xllamacpp  # type: ignore[import-not-found]

CONTEXT_TOKENS = 4096
CACHE_MIB = 64
BATCH_TOKENS = 64  # a call that is given up stops at the end of a batch, here within a second; 2048 took 20 s


def parameters(model: str) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free one
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1  # slots share the context; a second call waits
    # Threads of llama.cpp spin while they wait: two on two busy cores are much slower than one.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cache_ram_mib = CACHE_MIB  # of earlier prompts; 8 GiB by default
    params.n_threads_http = 2
    params.ui = False
    params.verbosity = 0  # prints nothing, so no prompt either
    return params


if __name__ == "__main__":
    server = xllamacpp.Server(parameters(sys.argv[1]))
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # destroying the server during a call never returns
