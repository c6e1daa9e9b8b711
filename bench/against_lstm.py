#!/usr/bin/env python3
"""Times torch's LSTM (cuDNN) forward, input projection included, at the rows of cellc_bench_cuda_dense.

    against_lstm.py [--bench build/cellc_bench_cuda_dense]

With --bench ours are timed in the same run, before. All in ms; f32 with TF32 allowed.
"""
import argparse
import subprocess

from peer_timing import fail, milliseconds

ROWS = [(16, 1024, 768), (16, 1024, 256), (1, 1024, 512), (1, 16384, 512), (64, 512, 512)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", help="cellc_bench_cuda_dense, to be timed in the same run")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        fail(f"torch is needed: {error}")
    if not torch.cuda.is_available():
        fail("there is no GPU")
    if options.bench:
        subprocess.run([options.bench, "all", "7"], check=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for batch, steps, units in ROWS:
        line = f"cuDNN ({batch}, {steps}, {units})"
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            lstm = torch.nn.LSTM(units, units, batch_first=True, device="cuda", dtype=dtype)
            x = torch.rand(batch, steps, units, device="cuda", dtype=dtype) * 2 - 1
            with torch.no_grad():
                line += f"  {str(dtype).removeprefix('torch.')} {milliseconds(torch, lambda: lstm(x), options.repeats):.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
