#!/usr/bin/env python3
"""Models and tokenizers go from minim to transformers and back: equal ids, logits within 1e-5.

check_transformers.py INTEROP, where INTEROP is the program built from interop.cpp. The interpreter
is $MINIM_PYTHON (default: this one). Exits with 77, Meson's "skipped", where it has no transformers.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

TOLERANCE = 1e-5
TEXTS = [
    "My card is lost!",
    "where is the money?",
    "Où est l'argent, s'il vous plaît",
    "x",
    "",
    "[MASK] the cards, 漢字 and \u200b\ttabs... don't un-lose THEM",
    "lost " * 50,
]


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def use_chosen_interpreter():
    chosen = os.environ.get("MINIM_PYTHON")
    if chosen and not os.environ.get("MINIM_PYTHON_STARTED"):
        os.environ["MINIM_PYTHON_STARTED"] = "1"
        try:
            os.execvp(chosen, [chosen] + sys.argv)
        except OSError as error:
            skip(f"MINIM_PYTHON={chosen} does not start ({error.strerror})")
    for module in ["transformers", "torch"]:
        if importlib.util.find_spec(module) is None:
            skip(f"{sys.executable} has no {module}; set MINIM_PYTHON to an interpreter that has it")


def minim_results(program, folder):
    lines = subprocess.run([program, "logits", folder], input="\n".join(TEXTS) + "\n", text=True,
                           encoding="utf-8", check=True, stdout=subprocess.PIPE).stdout.splitlines()
    return [json.loads(line) for line in lines]


def transformers_results(model, tokenizer):
    import torch

    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=128, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        logits = model(**batch).logits
    return [{"ids": ids[mask.bool()].tolist(), "logits": row.tolist()}
            for ids, mask, row in zip(batch["input_ids"], batch["attention_mask"], logits)]


def compare(direction, ours, theirs):
    assert len(ours) == len(theirs) == len(TEXTS), f"{direction}: {len(ours)} results"
    worst = 0.0
    for text, our, their in zip(TEXTS, ours, theirs):
        assert our["ids"] == their["ids"], f"{direction}: {text!r}: {our['ids']}, {their['ids']}"
        assert len(our["logits"]) == len(their["logits"]), f"{direction}: {text!r}: label counts"
        worst = max([worst] + [abs(a - b) for a, b in zip(our["logits"], their["logits"])])
    spread = max(r["logits"][0] for r in theirs) - min(r["logits"][0] for r in theirs)
    print(f"{direction}: ids equal, logits within {worst:.1e} (they spread over {spread:.2f})")
    assert worst <= TOLERANCE and spread > 1000 * TOLERANCE, direction


def main():
    program = os.path.abspath(sys.argv[1])
    use_chosen_interpreter()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "minim")
        subprocess.run([program, "make", made], check=True)
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
            made, output_loading_info=True)
        for kind in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
            assert not info[kind], f"{kind}: {info[kind]}"
        assert model.config.id2label == {0: "lost card", 1: "où est l'argent", 2: "other"}
        tokenizer = transformers.AutoTokenizer.from_pretrained(made)
        compare("minim -> transformers", minim_results(program, made),
                transformers_results(model.eval(), tokenizer))

        torch.manual_seed(5)
        config = transformers.DistilBertConfig(
            vocab_size=len(tokenizer), dim=48, n_heads=3, n_layers=3, hidden_dim=80,
            max_position_embeddings=128, num_labels=12, initializer_range=0.15)
        theirs = transformers.DistilBertForSequenceClassification(config).eval()
        for options in [{}, {"max_shard_size": "50KB"}]:
            saved = os.path.join(folder, f"transformers{len(options)}")
            theirs.save_pretrained(saved, **options)
            tokenizer.save_pretrained(saved)
            compare(f"transformers -> minim {options or ''}", minim_results(program, saved),
                    transformers_results(theirs, tokenizer))


if __name__ == "__main__":
    main()
