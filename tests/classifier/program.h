#pragma once

#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/core/contains.h"
#include "tests/core/temporary_folder.h"

// Runs the program as a shell would.
namespace minim::test {

struct Outcome {
  int status = -1;  // exit status; 128 + signal where a signal ended it
  std::string output, errors;
  double seconds = 0;
};

using Arguments = std::vector<std::string>;

// Starts the program with its streams in files of `folder`; `prepare` runs in the new process.
inline pid_t start_classifier(const Arguments& arguments, const TemporaryFolder& folder,
                              const std::string& input = "",
                              const std::function<void()>& prepare = nullptr) {
  write_whole_file(folder / "in", input);
  // A process that is killed at once has not opened them.
  write_whole_file(folder / "out", "");
  write_whole_file(folder / "err", "");
  std::vector<char*> values = {const_cast<char*>(MINIM_CLASSIFIER)};
  for (const std::string& argument : arguments)
    values.push_back(const_cast<char*>(argument.c_str()));
  values.push_back(nullptr);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  ::dup2(::open(in.c_str(), O_RDONLY), 0);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
  if (prepare) prepare();
  ::execv(MINIM_CLASSIFIER, values.data());
  ::_exit(127);
}

inline Outcome wait_for(pid_t child, const TemporaryFolder& folder) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  Outcome outcome;
  outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.output = read_whole_file(folder / "out");
  outcome.errors = read_whole_file(folder / "err");
  return outcome;
}

inline Outcome classifier(const Arguments& arguments, const std::string& input = "",
                          const std::function<void()>& prepare = nullptr) {
  const TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = wait_for(start_classifier(arguments, folder, input, prepare), folder);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

// The same, where it has to work.
inline Outcome succeed(const Arguments& arguments, const std::string& input = "") {
  Outcome outcome = classifier(arguments, input);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  return outcome;
}

// Where it has to fail with one sentence and no crash: the text after "error: ".
inline std::string failure_of(const Arguments& arguments, int status = 1) {
  const Outcome outcome = classifier(arguments);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == status);
  const size_t at = outcome.errors.rfind("error: ");
  REQUIRE(at != std::string::npos);
  REQUIRE(outcome.errors.ends_with("\n"));
  const std::string text = outcome.errors.substr(at + 7);
  CHECK(text.find('\n') == text.size() - 1);  // it is the last line
  return text.substr(0, text.size() - 1);
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// Questions to a bank about two things, in the form of banking77.
inline std::string questions(int rows, const std::string& header = "text,label") {
  const std::vector<std::string> lost = {"i lost my card", "my card is lost", "card lost, help",
                                         "where is my lost card"};
  const std::vector<std::string> rate = {"what is the exchange rate", "how good is your rate",
                                         "which exchange rates apply", "rates for euros"};
  std::string csv = header + "\n";
  for (int i = 0; i < rows; ++i) {
    const std::string& text = (i % 2 == 0 ? lost : rate)[size_t(i / 2 % 4)];
    csv += "\"" + text + "\"," + (i % 2 == 0 ? "lost_card" : "exchange_rate") + "\n";
  }
  return csv;
}

// A model of two layers and few weights, trained for two steps on 16 questions.
inline Arguments train_arguments(const std::string& train_file, const std::string& output) {
  return {"train",
          "--preset",
          "tiny",
          "--train-file",
          train_file,
          "--output-dir",
          output,
          "--max-steps",
          "2",
          "--vocab-size",
          "60",
          "--config-overrides",
          "dim=16,hidden_dim=32,n_heads=2"};
}
inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Such a model, made once; not to be changed.
inline const std::string& trained_model() {
  static const TemporaryFolder folder;
  static const std::string model = [] {
    write_whole_file(folder / "train.csv", questions(32));
    succeed(train_arguments(folder / "train.csv", folder / "model") +
            Arguments{"--max-steps", "60", "--learning-rate", "3e-3"});
    return folder / "model";
  }();
  return model;
}

}  // namespace minim::test
