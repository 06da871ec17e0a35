#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "train/callback.h"

// Event files that TensorBoard reads: TFRecords of Event messages, written without its libraries.
namespace minim::train {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of some bytes.
uint32_t crc32c(std::string_view bytes);

// A TFRecord: length, masked checksum of that, the data, masked checksum of it.
std::string tf_record(std::string_view data);

// A new file of events. Each one is given to the system in one piece, so that whoever kills the
// program loses none and leaves no half of one.
class EventFile {
 public:
  // Makes folder/events.out.tfevents.TIME.HOST.PID.N; throws if that cannot be written.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }
  // Values of one step under their tags.
  void add(int64_t step, std::span<const std::pair<std::string, double>> scalars);
  // Says that a run begins again: what earlier files hold of this step and later ones is void.
  void restart(int64_t step);

 private:
  void write(std::string_view event);
  std::string path_;
  int descriptor_ = -1;
};

// Writes logs and evaluations with the tags of Hugging Face's TensorBoardCallback: train/loss,
// train/learning_rate, eval/accuracy. A run that goes on adds a file.
class TensorBoardCallback : public TrainerCallback {
 public:
  // Makes the folder if need be.
  explicit TensorBoardCallback(const std::string& logging_dir) : events_(logging_dir) {}

  void on_train_begin(const TrainerState& state) override;
  void on_log(const TrainerState& state, const Metrics& logs) override;
  void on_evaluate(const TrainerState& state, const Metrics& metrics) override;
  void on_train_end(const TrainerState& state) override;

 private:
  EventFile events_;
};

// Where a run that is given no logging_dir puts its events: output_dir/runs/MonDD_HH-MM-SS_HOST as
// in Hugging Face; for a run that goes on, the newest such folder, if there is one.
std::string default_logging_dir(const std::string& output_dir, bool goes_on);

}  // namespace minim::train
