// An emulated machine beneath the library, on which one operation is made to fail, and what can be told of its state.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulator/api/emulated_driver.hpp"

namespace cuvmm::test {

// A strict machine of two devices, whose work advances in the calling thread alone, with the first device's primary
// context current.
class LibraryWorld {
 public:
  // On a machine of its own, or on that one, which it shares (docs/emulator.md).
  explicit LibraryWorld(const std::string& machine = {});

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] driver::FaultInjectingDriver& faults() const noexcept { return *faults_; }
  [[nodiscard]] emulator::api::EmulatedDriver& emulated() const noexcept { return *emulated_; }

  // What there is, as a text: objects of the driver, and the size, chunks, rights and counters of the objects below.
  [[nodiscard]] std::string state() const;
  // Of the driver alone.
  [[nodiscard]] std::string objects() const;

  // Gives up what is below, the context apart.
  void let_go();

  // A stream with a memset of the range in it, which has not run; the range is told.
  void use_range();

 private:
  std::shared_ptr<emulator::api::EmulatedDriver> emulated_;
  std::shared_ptr<driver::FaultInjectingDriver> faults_;
  Driver driver_;

 public:
  // What operations work on, and what they make. In the order of their making.
  std::optional<CurrentContext> current;
  std::shared_ptr<PhysicalSource> source;
  std::shared_ptr<RetireQueue> queue;
  std::optional<AddressReservation> reservation;
  std::optional<PhysicalMemory> memory;
  std::optional<Mapping> mapping;
  std::optional<StreamUses> uses;
  std::optional<MappedRange> range;
  std::optional<MappedRange> second_range;
  std::optional<DeviceBuffer> buffer;
  std::optional<RingBuffer> ring;
  std::optional<StitchedMemory> stitched;
  SharedPhysicalMemory shared;
  std::vector<SharedPhysicalMemory> many;
  std::vector<DmaBuf> dma_bufs;
  std::optional<PendingWork> work;
  CUstream_st* stream = nullptr;
  CUevent_st* event = nullptr;
  std::optional<PointerInfo> info;
  std::optional<Capabilities> capabilities;
};

// How a failure leaves things, as documented.
enum class Unfinished {
  as_before,
  as_before_if_undone,  // where undoing fails, too, there is less than before
  part_of_the_way,      // part of what was to be given back has been
};

struct LibraryOperation {
  std::string name;
  std::function<void(LibraryWorld&)> prepare;
  std::function<void(LibraryWorld&)> run;
  Unfinished unfinished = Unfinished::as_before;
};

[[nodiscard]] std::vector<LibraryOperation> library_operations();
[[nodiscard]] std::vector<LibraryOperation> shape_operations();  // part of them

}  // namespace cuvmm::test
