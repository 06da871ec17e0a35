"""One round of Hugging Face's tokenizers on one thread: prints seconds and a checksum of the ids.

    tokenizer_peer.py vocab.txt TEXTS.csv      a lower-case vocabulary, a file with a column `text`
"""
import csv
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import BertWordPieceTokenizer  # noqa: E402

vocab, path = sys.argv[1:]
with open(path, encoding="utf-8", newline="") as file:
    texts = [row["text"] for row in csv.DictReader(file)]
tokenizer = BertWordPieceTokenizer(vocab, lowercase=True)._tokenizer
# The variant without offsets, where the release has it.
encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)

best = float("inf")
for _ in range(3):
    start = time.perf_counter()
    encodings = encode(texts)
    best = min(best, time.perf_counter() - start)

checksum = 0
for encoding in encodings:
    for token in encoding.ids:
        checksum = (checksum * 31 + token) % 2**64
print(best, checksum)
