#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch on the expert FFN shapes of bench/shapes/, forward and backward, and writes results as our benchmarks do.

usage: torch_ffn.py [--threads N] [--only PART] [--dtype bf16|f32] [--rounds N] [--ffn-bench PROGRAM] [--json FILE]

With --ffn-bench (build/release/bench/ffn_bench) that runs before and after each shape, and the ratio to it is printed.

Two ways of writing it: "loop", products of one expert after another on rows sorted by expert, with gradients written in place;
"grouped", torch's own grouped product and its gradient, where the installed version has one. SwiGLU included, gather and
combine not, as in ffn_bench. torch depends on malloc; try the tuned one too:
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=34359738368:glibc.malloc.trim_threshold=68719476736"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    sys.exit("torch_ffn: no PyTorch in this Python; run it from an environment that has one")

SHAPES = pathlib.Path(__file__).resolve().parent.parent / "shapes"


def read_shapes(only):
    """(name, E, D, F, K or 0, tokens or rows an expert) of every ffn line."""
    for path in sorted(SHAPES.glob("*.txt")):
        for words in (line.split() for line in path.read_text(encoding="utf-8").splitlines()):
            if len(words) == 6 and words[0] == "ffn" and only in f"{path.stem}/{words[1]}":
                experts, d, f = map(int, words[2:5])
                zipf = words[5].removeprefix("zipf:").split("x")
                k, count = (int(zipf[0]), int(zipf[1])) if len(zipf) == 2 else (0, int(words[5]))
                yield f"{path.stem}/{words[1]}", experts, d, f, k, count


def rows_of_experts(experts, k, count, seed):
    """K distinct experts a token, popularity 1 / rank with ranks dealt at random; without K the same for all."""
    if k == 0:
        return torch.full((experts,), count)
    draw = torch.Generator().manual_seed(seed)
    popularity = 1.0 / (1.0 + torch.randperm(experts, generator=draw).float())
    chosen = torch.multinomial(popularity.expand(count, experts), k, replacement=False, generator=draw)
    return torch.bincount(chosen.flatten(), minlength=experts)


class LoopedProduct(torch.autograd.Function):
    """y[e] = x[e] w[e]^T, one expert after the other."""

    @staticmethod
    def forward(ctx, x, w, bounds):
        ctx.save_for_backward(x, w)
        ctx.bounds = bounds
        y = x.new_empty(x.shape[0], w.shape[1])
        for e, (first, last) in enumerate(bounds):
            torch.mm(x[first:last], w[e].t(), out=y[first:last])
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        for e, (first, last) in enumerate(ctx.bounds):
            torch.mm(dy[first:last], w[e], out=dx[first:last])
            torch.mm(dy[first:last].t(), x[first:last], out=dw[e])
        return dx, dw, None


def grouped_function():
    found = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    return found


class Ffn:
    def __init__(self, shape, dtype):
        _, experts, d, f, k, count = shape
        rows = rows_of_experts(experts, k, count, 1)
        ends = rows.cumsum(0)
        self.ends = ends.to(torch.int32)
        self.bounds = list(zip((ends - rows).tolist(), ends.tolist()))
        num = int(ends[-1])
        self.flops = 18.0 * num * d * f
        self.x = torch.randn(num, d).to(dtype).requires_grad_(True)
        self.dy = torch.randn(num, d).to(dtype)
        self.route = torch.full((num, 1), 1.0 / max(k, 1), dtype=dtype, requires_grad=True)
        self.gate_up = (0.03 * torch.randn(experts, 2 * f, d)).to(dtype).requires_grad_(True)
        self.down = (0.03 * torch.randn(experts, d, f)).to(dtype).requires_grad_(True)

    def step(self, product):
        for tensor in (self.x, self.route, self.gate_up, self.down):
            tensor.grad = None
        gate, up = product(self.x, self.gate_up).chunk(2, -1)
        act = torch.nn.functional.silu(gate) * up * self.route
        product(act, self.down).backward(self.dy)

    def ways(self):
        yield "loop", lambda: self.step(lambda x, w: LoopedProduct.apply(x, w, self.bounds))
        grouped = grouped_function()
        if grouped is not None:
            yield "grouped", lambda: self.step(lambda x, w: grouped(x, w.transpose(-2, -1), offs=self.ends))


def timed(step, rounds):
    step()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def ours(program, shape, a):
    """Median seconds of ffn_bench on one shape."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "ours.json"
        subprocess.run([program, "--only", shape, "--dtype", a.dtype, "--threads", str(a.threads), "--rounds", str(a.rounds),
                        "--peers", "no", "--routings", "0", "--json", str(result)], check=True, stdout=subprocess.DEVNULL)
        entries = json.loads(result.read_text(encoding="utf-8"))["entries"]
    return next(e["median_seconds"] for e in entries if e["name"].startswith(shape + " "))


def commit():
    command = ["git", "-C", str(SHAPES), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ffn-bench")
    parser.add_argument("--json")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    malloc = "tuned malloc" if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") else "default malloc"
    print(f"torch {torch.__version__}, {a.threads} threads, {malloc}")
    entries = []
    for shape in read_shapes(a.only):
        ffn = Ffn(shape, torch.bfloat16 if a.dtype == "bf16" else torch.float32)
        planalto = [ours(a.ffn_bench, shape[0], a)] if a.ffn_bench else []
        best = None
        for way, step in ffn.ways():
            try:
                seconds = timed(step, a.rounds)
            except RuntimeError as error:
                print(f"{shape[0]} {way}: this torch refuses it: {str(error).splitlines()[0]}")
                continue
            middle = statistics.median(seconds)
            print(f"{shape[0]:<32} {way:<8} {1e3 * middle:10.1f} ms ({1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f})"
                  f" {ffn.flops / middle / 1e9:8.1f} GFLOP/s", flush=True)
            best = min(best or middle, middle)
            entries.append({"name": f"{shape[0]} {a.dtype} ffn forward+backward", "by": f"torch {torch.__version__} {way}, {malloc}",
                            "bound": a.dtype, "flops": ffn.flops, "bytes": 0.0, "median_seconds": middle, "seconds": seconds})
        if planalto and best:
            planalto.append(ours(a.ffn_bench, shape[0], a))
            print(f"{shape[0]:<32} planalto {' and '.join(f'{1e3 * s:.1f}' for s in planalto)} ms:"
                  f" {best / statistics.mean(planalto):.2f}x torch's best")
    if a.json:
        run = {"program": "torch_ffn.py", "command": " ".join(["torch_ffn.py"] + sys.argv[1:]), "commit": commit(),
               "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "cpu": platform.processor(),
               "isa": "torch", "threads": a.threads, "clock": "wall", "peaks": {}, "entries": entries}
        pathlib.Path(a.json).write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
