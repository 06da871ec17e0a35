#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/file.h"
#include "tests/train/small_model.h"
#include "train/tensorboard.h"

// Event files, read by another way than they are written.
using namespace minim;
using namespace minim::test;
namespace fs = std::filesystem;

namespace {

// CRC-32C bit by bit, highest bit first on mirrored numbers: no table and no mirrored polynomial.
uint32_t mirrored(uint32_t x, int bits) {
  uint32_t y = 0;
  for (int i = 0; i < bits; ++i)
    y |= ((x >> i) & 1) << (bits - 1 - i);
  return y;
}
uint32_t slow_crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= mirrored(uint8_t(byte), 8) << 24;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc << 1) ^ ((crc >> 31) != 0 ? 0x1edc6f41u : 0);
  }
  return ~mirrored(crc, 32);
}

template <class T>
T number_at(const std::string& bytes, size_t place) {
  T value = 0;
  REQUIRE(place + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + place, sizeof(T));  // x86 and Arm are little endian
  return value;
}

// The data of each record; checksums are checked.
std::vector<std::string> records_of(const std::string& file) {
  const auto holds = [](uint32_t stored, std::string_view bytes) {
    const uint32_t crc = slow_crc(bytes);
    return stored == ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const auto length = size_t(number_at<uint64_t>(file, at));
    CHECK(holds(number_at<uint32_t>(file, at + 8), file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    CHECK(holds(number_at<uint32_t>(file, at + 12 + length), records.back()));
    at += length + 16;
  }
  return records;
}

// Fields of a message: number and raw bytes (of a varint: its value as 8 bytes).
std::vector<std::pair<int, std::string>> fields_of(const std::string& message) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(at < message.size());
      const auto byte = uint8_t(message[at++]);
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<std::pair<int, std::string>> fields;
  while (at < message.size()) {
    const uint64_t key = varint();
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), 8);
    } else {
      const size_t length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : size_t(varint());
      REQUIRE(at + length <= message.size());
      value = message.substr(at, length);
      at += length;
    }
    fields.emplace_back(int(key >> 3), value);
  }
  return fields;
}

struct Event {
  int64_t step = 0;
  double wall_time = 0;
  std::string version;
  bool restarts = false;
  Metrics scalars;
};

Event event_of(const std::string& record) {
  Event event;
  for (const auto& [field, value] : fields_of(record)) {
    if (field == 1) event.wall_time = std::bit_cast<double>(number_at<uint64_t>(value, 0));
    if (field == 2) event.step = int64_t(number_at<uint64_t>(value, 0));
    if (field == 3) event.version = value;
    if (field == 7) event.restarts = fields_of(value)[0].second[0] == 1;
    if (field != 5) continue;
    for (const auto& entry : fields_of(value)) {
      const auto parts = fields_of(entry.second);
      REQUIRE(parts.size() == 2);
      event.scalars.emplace_back(parts[0].second,
                                 std::bit_cast<float>(number_at<uint32_t>(parts[1].second, 0)));
    }
  }
  return event;
}

std::vector<Event> events_of(const std::string& path) {
  std::vector<Event> events;
  for (const std::string& record : records_of(read_whole_file(path)))
    events.push_back(event_of(record));
  return events;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

}  // namespace

TEST_CASE("CRC-32C is that of RFC 3720") {
  // Appendix B.4: 32 bytes of zeros, of ones, counting up and counting down.
  std::string up, down;
  for (int i = 0; i < 32; ++i) {
    up += char(i);
    down += char(31 - i);
  }
  CHECK(train::crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(train::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(train::crc32c(up) == 0x46dd794eu);
  CHECK(train::crc32c(down) == 0x113fdb5cu);
  CHECK(slow_crc(up) == 0x46dd794eu);
}

TEST_CASE("every log and evaluation is an event with Hugging Face's tags") {
  const TemporaryFolder folder;
  const TrainingArguments arguments{.per_device_train_batch_size = 4,
                                    .num_train_epochs = 1,
                                    .eval_strategy = IntervalStrategy::epoch,
                                    .logging_steps = 2};
  Run run(arguments, 16, 6);
  run.trainer.add_callback(std::make_shared<train::TensorBoardCallback>(folder / "runs"));
  run.trainer.train();
  const auto files = files_in(folder / "runs");
  REQUIRE(files.size() == 1);
  const auto events = events_of(files[0]);
  REQUIRE(events.size() == 5);  // the version, logs of steps 2 and 4, the evaluation, the end
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time > 1.7e9);
  CHECK(events[1].step == 2);
  CHECK(names_of(events[1].scalars) == std::vector<std::string>{"train/loss", "train/grad_norm",
                                                                "train/learning_rate",
                                                                "train/epoch"});
  CHECK(value_of(events[1].scalars, "train/loss") ==
        doctest::Approx(value_of(run.recorder->logs[0], "loss")).epsilon(1e-6));
  CHECK(events[3].step == 4);
  CHECK(value_of(events[3].scalars, "eval/accuracy") ==
        doctest::Approx(value_of(run.recorder->evaluations[0], "eval_accuracy")).epsilon(1e-6));
  CHECK(value_of(events[3].scalars, "train/epoch") == 1);
  CHECK(value_of(events[4].scalars, "train/train_loss") > 0);
}

TEST_CASE("an event is on the disk whole as soon as it is told") {
  const TemporaryFolder folder;
  train::EventFile file(folder.path());
  for (int64_t step = 1; step <= 300; step += 100) {
    file.add(step, Metrics{{"train/loss", 1.0 / double(step)}, {"train/grad_norm", NAN}});
    const Event last = events_of(file.path()).back();
    CHECK(last.step == step);
    CHECK(value_of(last.scalars, "train/loss") == float(1.0 / double(step)));
    CHECK(std::isnan(value_of(last.scalars, "train/grad_norm")));
  }
}

TEST_CASE("a run that goes on adds a file that voids the steps it repeats") {
  const TemporaryFolder folder;
  TrainerState state;
  train::TensorBoardCallback first(folder.path());
  first.on_train_begin(state);
  state.global_step = 70;
  train::TensorBoardCallback second(folder.path());
  second.on_train_begin(state);
  const auto files = files_in(folder.path());
  REQUIRE(files.size() == 2);
  CHECK(events_of(files[0]).size() == 1);
  const auto events = events_of(files[1]);
  REQUIRE(events.size() == 2);
  CHECK(events[1].restarts);
  CHECK(events[1].step == 71);
}

TEST_CASE("without a logging_dir events go to runs/, on resuming to the newest folder there") {
  const TemporaryFolder folder;
  const std::string fresh = train::default_logging_dir(folder.path(), true);
  CHECK(fresh.starts_with(folder / "runs/"));
  CHECK(!fs::exists(fresh));
  fs::create_directories(folder / "runs/Jan01_00-00-00_a");
  fs::create_directories(folder / "runs/Feb01_00-00-00_a");
  fs::last_write_time(
      folder / "runs/Jan01_00-00-00_a",
      fs::last_write_time(folder / "runs/Feb01_00-00-00_a") - std::chrono::hours(1));
  CHECK(train::default_logging_dir(folder.path(), true) == folder / "runs/Feb01_00-00-00_a");
  CHECK(train::default_logging_dir(folder.path(), false) != folder / "runs/Feb01_00-00-00_a");
}

TEST_CASE("a folder that cannot be written to is named") {
  CHECK_THROWS_AS(train::EventFile("/dev/null/runs"), Error);
}
