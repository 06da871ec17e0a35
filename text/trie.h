#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::text {

// A byte trie in a double array (Aoe 1989): one step is one addition and one comparison, and the
// arrays of a 30,000-piece vocabulary fit into a level-2 cache.
class Trie {
 public:
  static constexpr int32_t dead_state =
      0;  // a node without children that every failed step leads to
  static constexpr int32_t root_state = 1;

  // A key and its value, at least 0.
  struct Entry {
    std::string_view key;
    int32_t value;
  };

  Trie() : Trie(std::vector<Entry>{}) {}
  // Keys must differ and not be empty.
  explicit Trie(std::vector<Entry> entries);

  // The node one byte further on, or dead_state.
  int32_t step(int32_t node, uint8_t byte) const {
    const int32_t next = nodes_[size_t(node)].base + byte;
    return nodes_[size_t(next)].parent == node ? next : dead_state;
  }
  // Value of the key that ends at this node, or -1.
  int32_t value(int32_t node) const { return values_[size_t(node)]; }

  // The node reached from `node` by all of `bytes`, or dead_state.
  int32_t walk(int32_t node, std::string_view bytes) const;
  // Value of a whole key, or -1.
  int32_t find(std::string_view key) const { return value(walk(root_state, key)); }

 private:
  struct Node {
    int32_t base = 0;     // children are at base + byte
    int32_t parent = -1;  // -1: free
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> values_;
};

}  // namespace minim::text
