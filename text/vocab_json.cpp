#include "text/vocab_json.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace minim::text {
namespace {

using nlohmann::json;

// Builds the tree of everything but model.vocab from the parser's events.
class Splitter final : public nlohmann::json_sax<json> {
 public:
  explicit Splitter(const std::string& path) : path_(path) {}

  SplitTokenizerJson take() { return {root_.dump(), std::move(vocab_)}; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(json::number_integer_t value) override { return add(value); }
  bool number_float(json::number_float_t value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }
  bool number_unsigned(json::number_unsigned_t value) override {
    if (!in_vocab_ || value >= uint64_t(most_token_ids)) return add(value);
    vocab_.emplace_back(std::move(key_), int32_t(value));
    return true;
  }
  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    const bool is_vocab = open_.size() == 2 && in_model_ && key_ == "vocab";
    if (open_.size() == 1) in_model_ = key_ == "model";
    enter(json::object());
    in_vocab_ = is_vocab;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override {
    enter(json::array());
    return true;
  }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    fail("{}: not valid JSON at byte {}", path_, position == 0 ? 0 : position - 1);
  }

 private:
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return (*open_.back())[key_] = std::move(value);
  }
  bool add(json value) {
    check(!in_vocab_, "{}: id {} of {} is not a token id (a whole number below {})", path_,
          value.dump(-1, ' ', false, json::error_handler_t::replace), key_, most_token_ids);
    place(std::move(value));
    return true;
  }
  void enter(json value) {
    if (in_vocab_) add(value);
    check(open_.size() < 64, "{}: objects and lists are nested more than 64 deep", path_);
    open_.push_back(&place(std::move(value)));
  }
  bool leave() {
    open_.pop_back();
    in_vocab_ = false;
    return true;
  }

  const std::string& path_;
  json root_;
  std::vector<json*> open_;  // from the root to where values are added
  std::string key_;
  bool in_model_ = false, in_vocab_ = false;
  std::vector<std::pair<std::string, int32_t>> vocab_;
};

}  // namespace

SplitTokenizerJson split_vocab(std::string_view contents, const std::string& path) {
  check(!contents.empty(), "{}: not valid JSON: the file is empty", path);
  Splitter splitter(path);
  json::sax_parse(contents, &splitter);
  return splitter.take();
}

}  // namespace minim::text
