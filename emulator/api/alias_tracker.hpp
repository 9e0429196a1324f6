// Who wrote what at which address: for finding reads that lack a fence.proxy.alias.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/api/interval_map.hpp"
#include "emulator/memory/bytes.hpp"

namespace cuvmm::emulator::api {

// Knows the accesses of launches that are running, as far as their kernels tell of them. The end of a launch orders all
// that it did, as it does on a device. Thread-safe.
class AliasTracker {
 public:
  using Launch = std::uint64_t;

  // Bytes at an address. What has no file is memory of the process, which has one address.
  struct Piece {
    std::uint64_t address = 0;
    memory::Piece bytes;
  };
  // Of a multicast address: the pieces of each device of the team.
  struct Access {
    bool multicast = false;
    std::vector<Piece> pieces;
  };

  Launch begin(int device);
  void end(Launch launch) noexcept;

  void wrote(Launch launch, const Access& access);
  // What is wrong with the read, in words, if the bytes were last written through another address by a launch that is
  // still running, without an alias fence, of the writer or of the reader, behind the write and before this read.
  // Between devices, addresses of the memory itself may differ: each has its own.
  [[nodiscard]] std::optional<std::string> reads(Launch launch, const Access& access);
  // With what was written right before, and is told of now: between the two no other launch reads.
  void alias_fence(Launch launch, const Access* written = nullptr);

 private:
  struct Running;
  void note(Launch launch, const Access& access, Running& writer);
  using File = const memory::MappedFile*;
  struct Write {
    Launch launch = 0;
    std::uint64_t alias = 0;  // the same for all bytes of a mapping: how far addresses are from places in the file
    bool multicast = false;
    std::uint64_t fences = 0;  // of all launches when it wrote
    friend bool operator==(const Write&, const Write&) = default;
  };
  struct Running {
    int device = 0;
    std::uint64_t last_fence = 0;  // its number among those of all launches; 0: none yet
    std::set<File> written;
  };

  [[nodiscard]] bool lacks_fence(const Running& reader, const Piece& piece, bool multicast, const Write& write) const;

  std::mutex mutex_;
  Launch next_ = 1;
  std::uint64_t fences_ = 0;  // how many there were, of all launches
  std::map<Launch, Running> running_;
  std::map<File, IntervalMap<Write>> writes_;
};

}  // namespace cuvmm::emulator::api
