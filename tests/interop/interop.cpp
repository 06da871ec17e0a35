// The C++ side of check_transformers.py.
//
//   interop make FOLDER     writes a small new model and its tokenizer
//   interop logits FOLDER   reads one text per line, prints {"ids": [...], "logits": [...]} each

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "autograd/node.h"
#include "models/distilbert.h"
#include "text/packing.h"
#include "text/tokenizer_files.h"

namespace {

using minim::models::DistilBertConfig;
using minim::models::DistilBertForSequenceClassification;
namespace text = minim::text;

void make(const std::string& folder) {
  std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",",   ".",
                                     "?",     "!",     "'",     "-",     "card",   "my",  "lost",
                                     "the",   "where", "is",    "money", "##ed",   "##ey"};
  for (char letter = 'a'; letter <= 'z'; ++letter)
    for (const std::string prefix : {"", "##"})
      pieces.push_back(prefix + letter);

  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = int64_t(pieces.size());
  config.dim = 32;
  config.hidden_dim = 64;
  config.n_heads = 4;
  config.initializer_range = 0.3;  // logits that differ from text to text
  config.labels = {"lost card", "où est l'argent", "other"};
  const DistilBertForSequenceClassification model(config, {.seed = 11});
  model.save_pretrained(folder);
  text::save_tokenizer(text::Tokenizer(text::TokenizerConfig::bert(pieces, true)), folder);
}

void print_logits(const std::string& folder) {
  const auto model = DistilBertForSequenceClassification::from_pretrained(folder);
  model.eval();
  const text::Tokenizer tokenizer = text::load_tokenizer(folder).tokenizer;
  std::vector<text::TokenSequence> sequences;
  for (std::string line; std::getline(std::cin, line);)
    sequences.push_back({.input_ids = tokenizer.encode(line, {.max_length = 128}).ids});

  const minim::NoGrad no_grad;
  const auto logits = model.forward(text::pack(sequences)).to_vector<float>();
  const size_t labels = logits.size() / sequences.size();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto row = logits.begin() + long(i * labels);
    const nlohmann::json line = {{"ids", sequences[i].input_ids},
                                 {"logits", std::vector<float>(row, row + long(labels))}};
    std::cout << line.dump() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 2 && args[0] == "make") {
      make(args[1]);
    } else if (args.size() == 2 && args[0] == "logits") {
      print_logits(args[1]);
    } else {
      std::cerr << "usage: interop make FOLDER | interop logits FOLDER\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
