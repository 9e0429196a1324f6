// Makes the calls of sequences: it knows the handles and addresses behind slots and places.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/sequences/world.hpp"

namespace cuvmm::conformance {

// What a call answered: its code, and what else can be seen of it that is the same on every machine.
struct Step {
  CUresult code = CUDA_SUCCESS;
  std::string seen;  // of the characters 0-9, a-f and *~-+/?_; empty if there is nothing

  friend bool operator==(const Step&, const Step&) = default;
};

// The driver cannot be brought to where sequences begin, or does not come back there after one.
class NotClean : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A process's driver and its contexts. Sequences are played in it one after the other.
class Player {
 public:
  // Initialises the driver, with that many devices' primary contexts, and makes device 0's current. Throws NotClean.
  Player(std::shared_ptr<driver::Interface> driver, int devices);
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  Player(Player&&) = delete;
  Player& operator=(Player&&) = delete;
  ~Player();

  [[nodiscard]] driver::Interface* operator->() const noexcept { return driver_.get(); }

  // The state that goes with a sequence's world: what slots and places stand for.
  std::array<CUmemGenericAllocationHandle, 8> handles{};
  std::array<int, 4> descriptors{-1, -1, -1, -1};
  std::array<CUdeviceptr, space::count> bases{};  // of the spaces
  std::array<CUstream, 3> streams{};
  std::array<CUevent, 3> events{};
  CUgraph graph = nullptr;
  CUgraphExec graph_exec = nullptr;

  // What the generator knows, before the call that is made.
  const World* world = nullptr;

  // The stream of a slot; the legacy stream for the number that stands for it.
  [[nodiscard]] CUstream stream(std::int64_t slot) const;
  [[nodiscard]] CUdeviceptr address(std::int64_t space, std::int64_t at) const;
  // The address in the form that is the same everywhere: an offset in a space, in pages; "?" for any other.
  [[nodiscard]] std::string relative(CUdeviceptr address) const;
  // Which live slot has that handle: "*" for none.
  [[nodiscard]] std::string same_handle(CUmemGenericAllocationHandle handle, std::int64_t but_slot) const;

  [[nodiscard]] CUcontext context(int device) const { return contexts_.at(static_cast<std::size_t>(device)); }
  // Room in host memory for what is copied.
  [[nodiscard]] unsigned char* buffer() noexcept { return buffer_.get(); }

  // Waits until all work is done. Not while a stream captures. Throws NotClean if a context is broken.
  void settle();

  // Gives back all that the sequence has left. Throws NotClean if the driver refuses.
  void clean_up(const World& world);

 private:
  void make_current(int device);
  void require(const char* step, CUresult result) const;
  void end_streams(const World& world);
  void end_memory(const World& world);

  std::shared_ptr<driver::Interface> driver_;
  std::vector<CUcontext> contexts_;
  std::unique_ptr<unsigned char[]> buffer_;
};

}  // namespace cuvmm::conformance
