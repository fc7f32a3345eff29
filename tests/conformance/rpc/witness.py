#!/usr/bin/python3
"""witness.py - a well-behaved client while others are not: EmptyCall every 20 ms, each tenth one over a
connection of its own, until standard input ends. Then one line of JSON.

usage: witness.py PORT
"""
import json
import select
import sys
import time

import grpc

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"


def main():
    target = f"127.0.0.1:{sys.argv[1]}"
    seen = {"kept": [], "fresh": []}
    failed = []

    def ask(kind, channel):
        begin = time.monotonic()
        try:
            channel.unary_unary(EMPTY_CALL)(b"", timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:
            failed.append(f"{kind}: {error.code().name}: {error.details()}")
        seen[kind].append((time.monotonic() - begin) * 1000)

    n = 0
    with grpc.insecure_channel(target) as kept:
        ask("kept", kept)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            ask("kept", kept)
            n += 1
            if n % 10 == 0:
                with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as fresh:
                    ask("fresh", fresh)
    print(json.dumps({"failed": failed[:5], "n_failed": len(failed)} |
                     {kind: {"n": len(times), "worst_ms": round(max(times, default=0), 1),
                             "p50_ms": round(sorted(times)[len(times) // 2], 2) if times else 0}
                      for kind, times in seen.items()}), flush=True)


main()
