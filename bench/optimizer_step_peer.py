"""Median milliseconds of one step of the peers in bench/optimizer_step.cpp, over the same 104 tensors.

usage: optimizer_step_peer.py THREADS     prints one line "NAME MILLISECONDS" for each peer there is

    adamw      torch.optim.AdamW(fused=True)
    sgd        torch.optim.SGD(momentum=0.9, fused=True)
    adafactor  transformers.optimization.Adafactor with an external rate, as its Trainer sets it up
    adam8bit   bitsandbytes.optim.Adam8bit on tensors of the CPU, with all moments in 8 bits that ours
               has in 8 bits
"""
import statistics
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]))


def shapes():
    yield from [(28996, 768), (512, 768), (768,), (768,)]
    for _ in range(6):
        for _ in range(4):
            yield from [(768, 768), (768,)]
        yield from [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)]
    yield from [(768, 768), (768,), (2, 768), (2,)]


parameters = [torch.full(shape, 0.02, requires_grad=True) for shape in shapes()]
for i, parameter in enumerate(parameters):
    parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 1e-3


def measure(name, make):
    """Prints the median time of three steps, after one that makes the state."""
    try:
        optimizer = make()
        times = []
        for _ in range(4):
            start = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - start)
    except Exception as error:  # a peer that is missing, or cannot do this, is left out
        print(f"{name}: {error}", file=sys.stderr)
        return
    print(name, 1e3 * statistics.median(times[1:]))


def adafactor():
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=5e-5, scale_parameter=False, relative_step=False)


def adam8bit():
    import bitsandbytes

    return bitsandbytes.optim.Adam8bit(parameters, lr=5e-5)


measure("adamw", lambda: torch.optim.AdamW(parameters, lr=5e-5, fused=True))
measure("sgd", lambda: torch.optim.SGD(parameters, lr=5e-5, momentum=0.9, fused=True))
measure("adafactor", adafactor)
measure("adam8bit", adam8bit)
