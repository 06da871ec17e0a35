#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"

namespace minim::text {

// A WordPiece vocabulary and its segmentation: from each position the longest piece that the
// vocabulary has; a word with a position that nothing fits is one unknown token (Devlin et al.
// 2019).
class WordPiece {
 public:
  struct Options {
    std::string unk_token = "[UNK]";
    std::string continuing_subword_prefix = "##";
    int64_t max_input_chars_per_word = 100;  // longer words, in code points, are unknown
  };
  // A piece and the bytes of the word it stands for.
  struct Piece {
    int32_t id;
    uint32_t begin, end;
  };

  // pieces[id] is the piece; an empty one is an id without a piece. Throws Error, whose text begins
  // with `name`, when two ids have the same piece or the unknown token is absent.
  WordPiece(const std::vector<std::string>& pieces, Options options, std::string_view name);

  const Options& options() const { return options_; }
  const Trie& trie() const { return trie_; }
  int32_t unk_id() const { return unk_id_; }
  // Id of a piece, spelled with its prefix, or -1.
  int32_t find(std::string_view piece) const { return piece.empty() ? -1 : trie_.find(piece); }

  // Appends the pieces of a word of `chars` code points.
  void segment(std::string_view word, int64_t chars, std::vector<Piece>& to) const;
  // The same, ids only; bytes are mapped through `map` (256 values) on the way.
  void segment(std::string_view word, int64_t chars, const uint8_t* map,
               std::vector<int32_t>& to) const;

 private:
  template <class Map, class Emit>
  bool greedy(std::string_view word, const Map& map, const Emit& emit) const;

  Options options_;
  Trie trie_;
  int32_t unk_id_ = -1;
  int32_t inside_ = Trie::dead_state;  // where the search for a continuing piece starts
};

}  // namespace minim::text
