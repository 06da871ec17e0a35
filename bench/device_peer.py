"""The step of bench/device.cpp in PyTorch and Transformers on a GPU: one JSON object per line.

usage: device_peer.py SEQUENCES LENGTH [ROUNDS]   (eager and compiled, f32 without TF32 and bf16 autocast)
"""
import json
import statistics
import sys
import time

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

sequences, length = map(int, sys.argv[1:3])
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
torch.backends.cuda.matmul.allow_tf32 = False


def measure(mode, dtype):
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = DistilBertForSequenceClassification(DistilBertConfig(vocab_size=28996)).cuda()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    run = torch.compile(model) if mode == "compiled" else model
    ids = torch.randint(0, 28996, (sequences, length)).pin_memory()
    labels = (torch.arange(sequences) % 2).pin_memory()

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(input_ids=ids.cuda(non_blocking=True), labels=labels.cuda(non_blocking=True)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    for _ in range(5):
        step()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {"what": "peer", "mode": mode, "dtype": dtype, "sequences": sequences, "length": length,
            "step_ms": 1e3 * seconds, "tokens_per_second": sequences * length / seconds,
            "peak_bytes": torch.cuda.max_memory_allocated()}


for mode in ("eager", "compiled"):
    for dtype in ("f32", "bf16"):
        try:
            result = measure(mode, dtype)
        except Exception as error:  # the others are still worth knowing
            result = {"what": "peer", "mode": mode, "dtype": dtype, "sequences": sequences, "length": length,
                      "error": str(error).splitlines()[0][:300] if str(error) else type(error).__name__}
        print(json.dumps(result), flush=True)
