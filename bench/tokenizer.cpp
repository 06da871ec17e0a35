#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/timing.h"
#include "core/error.h"
#include "text/csv.h"
#include "text/tokenizer_files.h"

// Speed of the tokenizer on one thread in megabytes of text per second, and beside Hugging Face's
// Rust library where a Python with `tokenizers` is found: MINIM_PYTHON names it, or python3.
//
//   tokenizer [TEXTS.csv [FOLDER]]     a file with a column `text`, a folder with a vocab.txt
namespace {

using namespace minim;
using bench::median;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string> read_texts(const std::string& path) {
  std::vector<std::string> warnings, texts;
  const text::TextFile file = text::read_text_file(path, false, warnings);
  text::CsvReader reader(file, ',', true);
  text::CsvRecord record;
  check(reader.next(record), "{}: the file is empty", path);
  const auto found = std::find(record.fields.begin(), record.fields.end(), "text");
  check(found != record.fields.end(), "{}: there is no column text", path);
  const auto column = size_t(found - record.fields.begin());
  while (reader.next(record))
    texts.push_back(record.fields.at(column));
  return texts;
}

// One round over all texts.
struct Round {
  double seconds = 0;
  uint64_t checksum = 0;  // of all ids in order; the peer computes the same
};

Round ids_round(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  static std::vector<int32_t> ids, all;
  all.clear();
  const auto start = Clock::now();
  for (const std::string& text : texts) {
    tokenizer.encode_ids(text, ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  Round round{seconds_since(start)};
  for (const int32_t id : all)
    round.checksum = round.checksum * 31 + uint64_t(id);
  return round;
}

Round offsets_round(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  Round round;
  const auto start = Clock::now();
  for (const std::string& text : texts)
    round.checksum += tokenizer.encode(text).offsets.size();
  round.seconds = seconds_since(start);
  return round;
}

// Runs the peer for one round in a process of its own; false where there is none.
bool peer_round(const std::string& command, Round& round) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  unsigned long long checksum = 0;
  const bool read = std::fscanf(pipe, "%lf %llu", &round.seconds, &checksum) == 2;
  round.checksum = checksum;
  return (pclose(pipe) == 0) && read;
}

void run(const std::string& texts_path, const std::string& folder) {
  const auto texts = read_texts(texts_path);
  const auto start = Clock::now();
  const text::Tokenizer tokenizer = text::load_tokenizer(folder).tokenizer;
  fmt::print("{}: {} texts; vocabulary loaded in {:.1f} ms\n", texts_path, texts.size(),
             1e3 * seconds_since(start));
  double megabytes = 0;
  for (const std::string& text : texts)
    megabytes += 1e-6 * double(text.size());

  const char* python = std::getenv("MINIM_PYTHON");
  const std::string command =
      fmt::format("{} '{}' '{}/vocab.txt' '{}' 2>/dev/null", python ? python : "python3",
                  MINIM_SOURCE_ROOT "/bench/tokenizer_peer.py", folder, texts_path);
  constexpr int rounds = 5, repeats = 3;  // the peer takes the best of three, too
  bool has_peer = true;
  std::vector<double> ours, with_offsets, peer;
  for (int i = 0; i < rounds; ++i) {
    Round best{1e30};
    for (int k = 0; k < repeats; ++k) {
      const Round round = ids_round(tokenizer, texts);
      best = round.seconds < best.seconds ? round : best;
    }
    ours.push_back(megabytes / best.seconds);
    with_offsets.push_back(megabytes / offsets_round(tokenizer, texts).seconds);
    Round other;
    has_peer = has_peer && peer_round(command, other);
    if (!has_peer) continue;
    peer.push_back(megabytes / other.seconds);
    check(other.checksum == best.checksum, "tokenizer: the ids differ from the peer's");
  }
  const double speed = median(ours);
  fmt::print("ids:                 {:8.1f} MB/s\n", speed);
  fmt::print("tokens and offsets:  {:8.1f} MB/s\n", median(with_offsets));
  if (has_peer)
    fmt::print("tokenizers (Rust):   {:8.1f} MB/s   same ids; minim is {:.0f} times as fast\n",
               median(peer), speed / median(peer));
  else
    fmt::print("tokenizers (Rust):   not measured: {} cannot import tokenizers; set MINIM_PYTHON\n",
               python ? python : "python3");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string root = MINIM_SOURCE_ROOT;
  try {
    run(argc > 1 ? argv[1] : root + "/examples/banking77/train.csv",
        argc > 2 ? argv[2] : root + "/tests/data/tokenizer/bert-base-uncased");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
