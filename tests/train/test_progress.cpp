#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/train/small_model.h"
#include "train/progress.h"

using namespace minim;
using namespace minim::test;
using train::ProgressCallback;

namespace {

const std::string erase_line = "\r\033[K";

TrainerState state_at(double seconds) {
  TrainerState state;
  state.global_step = 723;
  state.max_steps = 6260;
  state.epoch = 2.31;
  state.num_train_epochs = 20;
  state.loss = 1.8313;
  state.learning_rate = 9.7e-4;
  state.grad_norm = 1.42;
  state.tokens_per_second = 41300;
  state.seconds = seconds;
  state.optimizer_state_bytes = 5 << 20;
  return state;
}

// A stream whose text can be read back.
class Output {
 public:
  Output() : file_(std::tmpfile()) {}
  ~Output() { std::fclose(file_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  std::FILE* file() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    std::string text(size_t(std::ftell(file_)), ' ');
    std::rewind(file_);
    CHECK(std::fread(text.data(), 1, text.size(), file_) == text.size());
    std::fseek(file_, 0, SEEK_END);
    return text;
  }

 private:
  std::FILE* file_;
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

}  // namespace

TEST_CASE("the progress line says where the run stands and how long it will take") {
  const std::string line = train::progress_line(state_at(10));
  CHECK(
      line.starts_with("epoch 2.31/20  step 723/6260  loss 1.8313  lr 9.7e-04  grad 1.42  "
                       "41.3k tok/s  state 5.0 MiB  peak "));
  CHECK(line.ends_with(" MiB  1:17 left"));  // 10 s / 723 * 5537 = 76.6 s
  CHECK(train::progress_line(state_at(1000)).ends_with("  2:07:38 left"));
  TrainerState start;
  start.max_steps = 10;
  CHECK(train::progress_line(start).ends_with("  0:00 left"));
}

TEST_CASE("a narrow line leaves out what matters least, and shows no half of a part") {
  const auto narrow = [](size_t columns) { return train::progress_line(state_at(10), columns); };
  CHECK(narrow(80) ==
        "epoch 2.31/20  step 723/6260  loss 1.8313  lr 9.7e-04  41.3k tok/s  1:17 left");
  CHECK(narrow(50) == "step 723/6260  loss 1.8313  1:17 left");
  CHECK(narrow(30) == "step 723/6260  loss 1.8313");
  CHECK(narrow(15) == "step 723/6260");
  CHECK(narrow(6) == "step 7");  // nothing is left to leave out
  CHECK(narrow(0).empty());
  for (size_t columns = 0; columns < 150; ++columns)
    CHECK(narrow(columns).size() <= columns);
}

TEST_CASE("there are no colours, so that NO_COLOR is kept") {
  const Output progress, results;
  ProgressCallback callback(progress.file(), results.file(), true);
  callback.on_train_begin(state_at(0));
  callback.on_step_end(state_at(1));
  callback.on_evaluate(state_at(2), {{"eval_loss", 0.5}});
  // All that is ever sent to a terminal beside text is the erasing of its line.
  CHECK(count(progress.text(), "\033") == count(progress.text(), erase_line));
  CHECK(count(results.text(), "\033") == 0);
}

TEST_CASE("where nothing is redrawn there is a plain line every ten seconds") {
  const Output progress, results;
  ProgressCallback callback(progress.file(), results.file(), false);
  callback.on_train_begin(state_at(0));
  for (int seconds = 1; seconds <= 25; ++seconds)
    callback.on_step_end(state_at(seconds));
  callback.on_train_end(state_at(25));
  const std::string text = progress.text();
  CHECK(count(text, "\n") == 2);
  CHECK(count(text, "\033") == 0);
  CHECK(count(text, "\r") == 0);
  CHECK(results.text().empty());
}

TEST_CASE("evaluations go to the results, in Hugging Face's words") {
  const Output progress, results;
  ProgressCallback callback(progress.file(), results.file(), false);
  callback.on_evaluate(state_at(1), {{"eval_loss", 0.63124}, {"epoch", 1.0}});
  CHECK(results.text() == "{'eval_loss': 0.6312, 'epoch': 1.0}\n");
  CHECK(count(progress.text(), "\n") == 1);
}

TEST_CASE("a redrawn line is erased at the end, also when the run fails") {
  const Output progress, results;
  {
    ProgressCallback callback(progress.file(), results.file(), true);
    callback.on_train_begin(state_at(0));
    callback.on_step_end(state_at(0.1));  // too soon
    CHECK(progress.text().empty());
    callback.on_step_end(state_at(0.3));
    callback.on_step_end(state_at(0.6));
    const std::string text = progress.text();
    CHECK(count(text, erase_line + "epoch 2.31/20") == 2);
    CHECK(count(text, "\n") == 0);
  }
  CHECK(progress.text().ends_with(erase_line));
}

TEST_CASE("a redrawn line is never wider than the terminal") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
    MESSAGE("not checked: there are no pseudo-terminals here");
    return;
  }
  const int descriptor = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(descriptor >= 0);
  std::FILE* screen = ::fdopen(descriptor, "w");
  const Output results;
  for (unsigned short columns : {40, 20, 2}) {
    const winsize size{.ws_row = 25, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(terminal, TIOCSWINSZ, &size) == 0);
    {
      ProgressCallback callback(screen, results.file(), true);
      callback.on_train_begin(state_at(0));
      callback.on_step_end(state_at(1));
    }
    // What erases, the text, and what erases it again; it may arrive in pieces.
    const size_t expected =
        2 * erase_line.size() + train::progress_line(state_at(1), size_t(columns) - 1).size();
    size_t shown = 0;
    for (pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
         ::poll(&ready, 1, shown < expected ? 2000 : 50) > 0;) {
      char bytes[1000];
      shown += size_t(::read(terminal, bytes, sizeof(bytes)));
    }
    CHECK(shown == expected);
  }
  ::setenv("TERM", "xterm", 1);
  CHECK(train::is_terminal(screen));
  ::setenv("TERM", "dumb", 1);
  CHECK(!train::is_terminal(screen));
  CHECK(!train::is_terminal(results.file()));
  std::fclose(screen);
  ::close(terminal);
}
