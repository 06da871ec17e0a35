#include "text/trie.h"

#include <algorithm>

namespace minim::text {
namespace {

// Keys [first, last) share the first `depth` bytes and become the subtree of `node`.
struct Subtree {
  size_t first, last, depth;
  int32_t node;
};

}  // namespace

Trie::Trie(std::vector<Entry> entries) {
  const auto by_key = [](const Entry& a, const Entry& b) { return a.key < b.key; };
  if (!std::is_sorted(entries.begin(), entries.end(), by_key))
    std::sort(entries.begin(), entries.end(), by_key);
  const auto grow = [&](size_t size) {
    if (size <= nodes_.size()) return;
    nodes_.resize(size + size / 2);
    values_.resize(nodes_.size(), -1);
  };
  grow(1024);
  // Both are in use, and no step leads to them: a root's children lie above it.
  nodes_[dead_state].parent = nodes_[root_state].parent = root_state;

  size_t first_free = 2;  // no slot before it is free
  std::vector<uint8_t> labels;
  std::vector<Subtree> todo{{0, entries.size(), 0, root_state}};
  while (!todo.empty()) {
    Subtree tree = todo.back();
    todo.pop_back();
    if (tree.first < tree.last && entries[tree.first].key.size() == tree.depth)
      values_[size_t(tree.node)] = entries[tree.first++].value;
    if (tree.first == tree.last) continue;

    labels.clear();
    for (size_t i = tree.first; i < tree.last; ++i) {
      const auto label = uint8_t(entries[i].key[tree.depth]);
      if (labels.empty() || labels.back() != label) labels.push_back(label);
    }
    // First fit. Slots that a search passes and finds nearly full are not looked at again.
    size_t slot = std::max<size_t>(first_free, size_t(labels[0]) + 2), tried = 0;
    for (;; ++slot) {
      grow(slot + 257);
      if (nodes_[slot].parent >= 0) continue;
      const size_t base = slot - labels[0];
      if (std::all_of(labels.begin(), labels.end(),
                      [&](uint8_t label) { return nodes_[base + label].parent < 0; }))
        break;
      if (++tried == 64) first_free = std::max(first_free, slot - 256), tried = 0;
    }
    while (nodes_[first_free].parent >= 0)
      ++first_free;

    const size_t base = slot - labels[0];
    nodes_[size_t(tree.node)].base = int32_t(base);
    for (size_t i = tree.first; i < tree.last;) {
      const char label = entries[i].key[tree.depth];
      size_t end = i;
      while (end < tree.last && entries[end].key[tree.depth] == label)
        ++end;
      const size_t child = base + uint8_t(label);
      nodes_[child].parent = tree.node;
      todo.push_back({i, end, tree.depth + 1, int32_t(child)});
      i = end;
    }
  }
  // A step adds at most 255 to a base; a leaf keeps base 0.
  size_t size = 2;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].parent >= 0) size = std::max({size, i + 1, size_t(nodes_[i].base) + 256});
  grow(size + 256);
  nodes_.resize(size + 256);
  values_.resize(nodes_.size(), -1);
  nodes_.shrink_to_fit();
  values_.shrink_to_fit();
}

int32_t Trie::walk(int32_t node, std::string_view bytes) const {
  for (const char byte : bytes)
    node = step(node, uint8_t(byte));
  return node;
}

}  // namespace minim::text
