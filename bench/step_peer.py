"""Median seconds of the training step of bench/step.cpp in PyTorch and Transformers, eager, f32.

usage: step_peer.py SEQUENCES LENGTH THREADS
"""
import statistics
import sys
import time

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

sequences, length, threads = map(int, sys.argv[1:4])
torch.set_num_threads(threads)
model = DistilBertForSequenceClassification(DistilBertConfig())
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
ids = torch.randint(0, 30522, (sequences, length))
mask = torch.ones_like(ids)
labels = torch.arange(sequences) % 2

times = []
for step in range(3):
    start = time.perf_counter()
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - start)
print(statistics.median(times[1:]))
