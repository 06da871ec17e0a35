#include "train/tensorboard.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {

namespace {

namespace fs = std::filesystem;

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);  // the polynomial, lowest bit first
    table[byte] = crc;
  }
  return table;
}();

// Records hold checksums rotated and shifted, so that a record inside a record is no riddle.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

// Little endian, whatever the machine.
template <class T>
std::string fixed(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes += char(uint8_t(value >> (8 * i)));
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += char(uint8_t(value | 0x80));
  return bytes + char(uint8_t(value));
}

// Fields of a protocol buffer by number; the lowest three bits of a key say how a value is stored.
std::string key(int field, int kind) {
  return varint(uint64_t(field) << 3 | uint64_t(kind));
}
std::string message(int field, std::string_view value) {
  return key(field, 2) + varint(value.size()) + std::string(value);
}

// An Event at this moment; the numbers of fields are those of TensorFlow's event.proto.
std::string event(int64_t step, std::string_view what) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string bytes = key(1, 1) + fixed(std::bit_cast<uint64_t>(now.count()));
  if (step != 0) bytes += key(2, 0) + varint(uint64_t(step));
  return bytes + std::string(what);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "localhost";
}

// "eval_loss" as eval/loss, "loss" as train/loss.
std::string tag_of(const std::string& name) {
  for (const char* part : {"eval", "test"})
    if (name.starts_with(std::string(part) + "_"))
      return fmt::format("{}/{}", part, name.substr(5));
  return "train/" + name;
}

Metrics tagged(const Metrics& metrics) {
  Metrics scalars;
  for (const auto& [name, value] : metrics)
    if (name != "step") scalars.emplace_back(tag_of(name), value);
  return scalars;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ crc_table[(crc ^ uint8_t(byte)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view data) {
  const std::string length = fixed(uint64_t(data.size()));
  return length + fixed(masked_crc(length)) + std::string(data) + fixed(masked_crc(data));
}

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({})", folder, error.message());
  // TensorBoard reads the files of a folder in the order of their names.
  for (int number = 0; descriptor_ < 0; ++number) {
    path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.{}", folder, std::time(nullptr),
                        host_name(), getpid(), number);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    check(descriptor_ >= 0 || errno == EEXIST, "{}: cannot be written ({})", path_,
          std::strerror(errno));
  }
  write(event(0, message(3, "brain.Event:2")));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::write(std::string_view event) {
  const std::string record = tf_record(event);
  ssize_t written = -1;
  do {
    written = ::write(descriptor_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  check(written == ssize_t(record.size()), "{}: cannot be written ({})", path_,
        written < 0 ? std::strerror(errno) : "the disk is full");
}

void EventFile::add(int64_t step, std::span<const std::pair<std::string, double>> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary +=
        message(1, message(1, tag) + key(2, 5) + fixed(std::bit_cast<uint32_t>(float(value))));
  write(event(step, message(5, summary)));
}

void EventFile::restart(int64_t step) {
  write(event(step, message(7, key(1, 0) + varint(1))));  // SessionLog, START
}

void TensorBoardCallback::on_train_begin(const TrainerState& state) {
  if (state.global_step > 0) events_.restart(state.global_step + 1);
}

void TensorBoardCallback::on_log(const TrainerState& state, const Metrics& logs) {
  events_.add(state.global_step, tagged(logs));
}

void TensorBoardCallback::on_evaluate(const TrainerState& state, const Metrics& metrics) {
  events_.add(state.global_step, tagged(metrics));
}

void TensorBoardCallback::on_train_end(const TrainerState& state) {
  if (!state.log_history.empty()) events_.add(state.global_step, tagged(state.log_history.back()));
}

std::string default_logging_dir(const std::string& output_dir, bool goes_on) {
  const fs::path runs = fs::path(output_dir) / "runs";
  std::error_code error;
  if (goes_on) {
    fs::path newest;
    fs::file_time_type when;
    for (fs::directory_iterator entry(runs, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!entry->is_directory(error)) continue;
      const fs::file_time_type time = entry->last_write_time(error);
      if (newest.empty() || time > when) {
        newest = entry->path();
        when = time;
      }
    }
    if (!newest.empty()) return newest.string();
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 64> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%b%d_%H-%M-%S", &local);
  return (runs / fmt::format("{}_{}", stamp.data(), host_name())).string();
}

}  // namespace minim::train
