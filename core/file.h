#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Whole files: read through the page cache, written so that a crash never leaves half of one.
namespace minim {

// A regular file in memory. Pages are read when they are touched.
class MappedFile {
 public:
  enum class Access : uint8_t {
    read_only,
    copy_on_write  // may be written to; the writes stay in this process and never reach the file
  };

  // Throws Error naming the path and the reason when there is no such file, it is not a regular
  // one, or its size changes meanwhile.
  explicit MappedFile(std::string path, Access access = Access::read_only);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // First byte, to be written to only under copy_on_write; null for an empty file.
  std::byte* data() const { return data_; }

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes a file under a temporary name in the same folder (`.minim-PID-N.tmp`) and gives it its
// own name only when every byte is on the disk. Until commit() the old file is untouched; without
// it the temporary file is removed. Each failure is an Error naming path, bytes and reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends.
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes to the disk and replaces the file of that name, if any, in one step.
  void commit();

 private:
  [[noreturn]] void give_up(std::string_view doing);
  void discard() noexcept;

  std::string path_;
  std::string folder_;
  std::string temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
};

// Writes a file through AtomicFile.
void write_whole_file(const std::string& path, std::string_view contents);

// Contents of a file, or an Error naming the path and the reason; more than `most` bytes are one.
std::string read_whole_file(const std::string& path, size_t most = size_t(1) << 30);

}  // namespace minim
