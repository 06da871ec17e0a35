"""Answers texts with Transformers, as bench/predict.cpp does with `classifier predict`.

    predict_peer.py MODEL TEXTS.csv COUNT THREADS

prints the answer to one text as soon as it is there, then the seconds of the first COUNT texts.
"""
import csv
import sys
import time

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

folder, path, count, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)


@torch.inference_mode()
def answer(texts, batch=32):
    answers = []
    for first in range(0, len(texts), batch):
        inputs = tokenizer(texts[first:first + batch], padding=True, truncation=True,
                           return_tensors="pt")
        inputs.pop("token_type_ids", None)
        answers += model(**inputs).logits.softmax(-1).max(-1).indices.tolist()
    return answers


print(answer(["I lost my card"])[0], flush=True)
with open(path, encoding="utf-8", newline="") as file:
    texts = [row["text"] for row in csv.DictReader(file)][:count]
start = time.perf_counter()
answer(texts)
print(time.perf_counter() - start)
