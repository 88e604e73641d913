"""How small and how soon: the memory of what runs for years, and what it takes until a command answers.

memory    resident size of `veil release` over a million readings
serving   resident size of `veil serve --mqtt` at its start, and after as many readings in messages of 20
start     CPU seconds of `veil --help`, and of `import veilstream` beyond those of numpy
"""

import os
import resource
import subprocess
import sys
import threading
import time

from benchmarks.echo import STREAMS, readings_from, setting, warm
from mosquitto import RawClient

VEIL = [sys.executable, "-c", "from veilstream.apps.cli import main; main()"]
BATCH, MESSAGES, TRIES = 20, 5000, 5


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bench_memory(readings: int = 1_000_000) -> dict[str, float]:
    """Resident size of `veil release` after a tenth and after all of the readings."""
    with setting(broker=False) as (folder, _):
        process = subprocess.Popen(
            [*VEIL, "release", str(folder / "policy.veil")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        out, done = process.stdout, [0]
        sizes: dict[int, int] = {}

        def read() -> None:
            for _ in out:
                done[0] += 1
                if done[0] in (readings // 10, readings):
                    sizes[done[0]] = resident(process.pid)

        reader = threading.Thread(target=read)
        reader.start()
        start = time.perf_counter()
        for first in range(0, readings, 1000):
            form, these = b'{"stream":"s%d","t":%d,"value":%d}\n', range(first, first + 1000)
            process.stdin.write(b"".join(form % (i % 1000, i // 1000, i % 16) for i in these))
            if first + 1000 == readings:
                process.stdin.flush()
                while done[0] < readings and process.poll() is None:
                    time.sleep(0.05)
        seconds = time.perf_counter() - start
        process.stdin.close()
        reader.join()
        process.wait()
    early, late = sizes[readings // 10], sizes[readings]
    return {
        "readings": readings,
        "readings_per_s": readings / seconds,
        "resident_mb_at_a_tenth": early / 1e6,
        "resident_mb_at_the_end": late / 1e6,
        "growth_ratio": late / early,
    }


def bench_serving(readings: int = 1_000_000) -> dict[str, float]:
    with setting() as (folder, broker):
        where = ["--mqtt", f"127.0.0.1:{broker.port}", "--in", "in/+", "--out", "out/+"]
        process = subprocess.Popen([*VEIL, "serve", str(folder / "policy.veil"), *where], stderr=subprocess.DEVNULL)
        try:
            client = RawClient(broker.port, "out/+")
            warm(client, "in")
            first, step = resident(process.pid), 1000
            for _ in range(readings // (BATCH * MESSAGES)):
                client.run(readings_from("in", step, MESSAGES, BATCH), MESSAGES)
                step += BATCH * (MESSAGES // STREAMS + 1)
            last = resident(process.pid)
            client.close()
        finally:
            process.terminate()
            process.wait(20)
    return {"readings": readings, "resident_mb_at_the_start": first / 1e6, "resident_mb_at_the_end": last / 1e6}


def bench_start() -> dict[str, float]:
    """Of several tries the least: what else the machine does is not ours."""
    numpys, ours = (_cpu_seconds([sys.executable, "-c", f"import {name}"]) for name in ("numpy", "numpy, veilstream"))
    return {"help_cpu_seconds": _cpu_seconds([*VEIL, "--help"]), "import_cpu_seconds_beyond_numpy": ours - numpys}


def _cpu_seconds(command: list[str]) -> float:
    found = []
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)
