// Each operation of the library with each of its driver calls, allocations and system calls failing: the right kind of
// error, everything as before, nothing leaked, and a retry works; where undoing fails as well, what cannot be undone is
// reported and kept out of use.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>

#include "fault_points.hpp"
#include "library_world.hpp"
#include "recording_handler.hpp"

namespace cuvmm::test {
namespace {

emulator::Configuration stepped_machine(const std::string& machine) {
  emulator::Configuration configuration;
  configuration.machine = machine;
  configuration.mode = emulator::Mode::strict;
  configuration.devices = 2;
  configuration.scheduler = emulator::Scheduler::stepped;
  return configuration;
}

std::string text_of(const MappedRange& range, emulator::api::EmulatedDriver& emulated) {
  std::string text = "; range " + std::to_string(range.size()) + "/" + std::to_string(range.mapped_bytes());
  for (const AccessGrant& each : range.grants())
    text += " " + to_string(each.location) + "=" + std::to_string(static_cast<int>(each.rights));
  for (const ChunkInfo& each : range.chunks()) {
    text += " [" + std::to_string(each.offset >> 20) + "+" + std::to_string(each.bytes >> 20);
    for (int device = 0; device < 2; ++device) {
      const abi::CUmemLocation location{abi::CU_MEM_LOCATION_TYPE_DEVICE, device};
      unsigned long long flags = 9;
      (void)emulated.cuMemGetAccess(&flags, &location, (range.address() + each.offset).value);
      text += ":" + std::to_string(flags);
    }
    text += "]";
  }
  return text + " quarantined " + std::to_string(range.quarantined().size());
}

}  // namespace

LibraryWorld::LibraryWorld(const std::string& machine)
    : emulated_(std::make_shared<emulator::api::EmulatedDriver>(stepped_machine(machine))),
      faults_(std::make_shared<driver::FaultInjectingDriver>(emulated_)),
      driver_(Driver::wrap(faults_)) {
  EXPECT_EQ(emulated_->cuInit(0), abi::CUDA_SUCCESS);
  current.emplace(driver_.device(DeviceOrdinal(0)));
}

std::string LibraryWorld::objects() const {
  const auto live = emulated_->machine().live_objects();
  const auto handles = emulated_->live_handles();
  std::string text;
  for (const auto& [name, count] :
       std::initializer_list<std::pair<const char*, std::size_t>>{{"handles", live.handles},
                                                                  {"mappings", live.mappings},
                                                                  {"reservations", live.reservations},
                                                                  {"allocations", live.allocations},
                                                                  {"exports", live.exports},
                                                                  {"streams", handles.streams},
                                                                  {"graphs", handles.graphs}})
    text += std::string(name) + " " + std::to_string(count) + " ";
  for (int device = 0; device < 2; ++device) {
    std::size_t free = 0;
    emulated_->machine().memory_info(device, &free, nullptr);
    text += "free " + std::to_string(free) + " ";
  }
  return text;
}

std::string LibraryWorld::state() const {
  std::string text = objects();
  if (mapping && mapping->size() != 0)
    for (const Location& each : {Location::device(DeviceOrdinal(0)), Location::device(DeviceOrdinal(1))})
      text += "; rights " + std::to_string(static_cast<int>(access(*mapping, each)));
  if (source) {
    const PhysicalSourceCounters counters = source->counters();
    text += "; source " + std::to_string(counters.live_bytes) + "/" + std::to_string(counters.recyclable_bytes) +
            " of " + std::to_string(source->existing_bytes(Location::device(DeviceOrdinal(0))));
  }
  if (queue) text += "; retired " + std::to_string(queue->pending()) + " " + std::to_string(queue->pending_bytes());
  if (range) text += text_of(*range, *emulated_);
  if (second_range) text += text_of(*second_range, *emulated_);
  if (buffer)
    text += "; buffer " + std::to_string(buffer->size()) + "/" + std::to_string(buffer->capacity()) + " generation " +
            std::to_string(buffer->generation()) + " left " + std::to_string(buffer->former_addresses().size()) +
            text_of(buffer->range(), *emulated_);
  if (ring)
    text += "; ring " + std::to_string(ring->write_position()) + "-" + std::to_string(ring->read_position()) +
            text_of(ring->range(), *emulated_);
  if (stitched) text += "; stitched" + text_of(stitched->range(), *emulated_);
  return text;
}

void LibraryWorld::let_go() {
  range.reset();
  second_range.reset();
  buffer.reset();
  ring.reset();
  stitched.reset();
  work.reset();
  uses.reset();
  mapping.reset();
  queue.reset();
  many.clear();
  shared = {};
  dma_bufs.clear();
  source.reset();
  memory.reset();
  reservation.reset();
}

void LibraryWorld::use_range() {
  driver::Interface& api = *emulated_;
  EXPECT_EQ(api.cuStreamCreate(&stream, abi::CU_STREAM_NON_BLOCKING), abi::CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemsetD8Async(range->address().value, 1, 4096, stream), abi::CUDA_SUCCESS);
  range->used_on(stream);
}

namespace {

// Which step fails: the n-th of a kind, alone or with all that come later, so that undoing what was done fails, too.
struct Step {
  FaultKind kind = FaultKind::allocation;
  std::uint64_t number = 1;
  bool lasting = false;
  abi::CUresult code = abi::CUDA_ERROR_UNKNOWN;  // of a driver call
};

struct Attempt {
  bool happened = false;
  bool failed = false;
  bool out_of_memory = false;
  std::string message;
};

void run(LibraryWorld& world, const LibraryOperation& subject, Attempt& result) {
  try {
    subject.run(world);
  } catch (const std::bad_alloc&) {
    result.failed = result.out_of_memory = true;
    result.message = "bad_alloc";
  } catch (const Error& error) {
    result.failed = true;
    result.out_of_memory = error.kind() == ErrorKind::out_of_device_memory ||
                           error.kind() == ErrorKind::out_of_host_memory ||
                           error.code() == abi::CUDA_ERROR_OUT_OF_MEMORY;
    result.message = error.what();
  }
}

Attempt attempt(LibraryWorld& world, const LibraryOperation& subject, const Step& step) {
  Attempt result;
  if (step.kind == FaultKind::driver_call) {
    const std::uint64_t before = world.faults().injected();
    world.faults().inject({std::nullopt, step.number, step.code, driver::FaultTiming::instead, step.lasting});
    run(world, subject, result);
    result.happened = world.faults().injected() > before;
    world.faults().clear();
    return result;
  }
  FaultPoint point(step.kind, step.number, step.lasting);
  run(world, subject, result);
  result.happened = point.happened();
  return result;
}

void expect_right_kind(const Step& step, const Attempt& result) {
  // Work that a call runs or waits for has no other way to fail, where memory stays away.
  const bool as_work = step.lasting && result.message.find("LAUNCH_FAILED") != std::string::npos;
  if (step.kind == FaultKind::allocation) {
    EXPECT_TRUE(result.out_of_memory || as_work) << result.message;
  } else if (needs_descriptor(step.kind)) {
    EXPECT_FALSE(result.out_of_memory) << result.message;
  }
}

// What must hold after the operation failed; `told` are the failures of clean-up.
void check_failure(LibraryWorld& world, const LibraryOperation& subject, const Step& step, const Attempt& first,
                   const std::string& before, const std::vector<Failure>& told) {
  expect_right_kind(step, first);
  if (!step.lasting) {
    for (const Failure& each : told) ADD_FAILURE() << "clean-up: " << each.message();
  }
  // Only where undoing has failed, too, may something differ; that has been told.
  const bool undone = subject.unfinished == Unfinished::as_before ||
                      (subject.unfinished == Unfinished::as_before_if_undone && !step.lasting);
  if (told.empty() && undone) {
    EXPECT_EQ(world.state(), before) << first.message;
  }
  // Where memory stayed away, work failed that the operation waited for, and the device with it.
  std::size_t free = 0;
  if (step.lasting && world.emulated().cuMemGetInfo(&free, nullptr) == abi::CUDA_ERROR_LAUNCH_FAILED) return;
  if (!undone && step.lasting) return;  // a retry has less to do, or nothing
  Attempt second;
  run(world, subject, second);
  EXPECT_FALSE(second.failed) << "a retry: " << second.message << "\nafter: " << first.message;
}

// One world, one failing step. Answers whether there is such a step.
bool fail_once(const LibraryOperation& subject, const Step& step, const std::string& machine) {
  RecordingHandler clean_up;
  LibraryWorld world(machine);
  if (subject.prepare) subject.prepare(world);
  const std::string before = world.state();
  const std::string descriptors = ProcessState::now().descriptors;
  const Attempt first = attempt(world, subject, step);
  if (!first.happened) {
    EXPECT_FALSE(first.failed) << first.message;
  } else {
    FaultPointTally::add(step.kind);
    if (first.failed) {
      (void)world.objects();  // the driver notices what was closed when it is asked
      EXPECT_EQ(ProcessState::now().descriptors, descriptors);
      check_failure(world, subject, step, first, before, clean_up.failures);
    }
  }
  world.let_go();
  if (clean_up.failures.empty()) {
    EXPECT_EQ(world.emulated().machine().live_objects(), emulator::api::Machine::LiveObjects()) << world.objects();
  }
  return first.happened;
}

int failures() {
  return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

void sweep(const LibraryOperation& subject, Step step, const std::string& machine = {}) {
  FaultPointTally::add_operation();
  const int failures_before = failures();
  const ProcessState before = ProcessState::now();
  std::int64_t blocks = -1;
  for (step.number = 1; step.number < 3000; ++step.number) {
    SCOPED_TRACE(subject.name + ", " + name_of(step.kind) + " " + std::to_string(step.number) +
                 (step.lasting ? " and all later" : ""));
    const bool happened = fail_once(subject, step, machine);
    EXPECT_EQ(to_string(ProcessState::now()), to_string(before)) << "left behind";
    if (blocks >= 0 && live_blocks() != blocks) {  // once: a text that the thread keeps; twice: a leak
      blocks = live_blocks();
      (void)fail_once(subject, step, machine);
      EXPECT_EQ(live_blocks(), blocks) << "blocks left behind";
    }
    blocks = live_blocks();
    if (!happened || failures() > failures_before) return;
  }
  ADD_FAILURE() << "there must be an end";
}

// Of what an observer was told that it goes, and is still there, it has to hear that it stayed.
TEST(RangeObservers, AreNotLeftToBelieveInWhatDidNotHappen) {
  const auto change_with = [](const char* what, bool queue, const std::function<void(MappedRange&)>& change) {
    for (std::uint64_t number = 1; number < 1000; ++number) {
      LibraryWorld world;
      MappedRangeOptions options{.capacity = 64_MiB, .chunks = ChunkPolicy::fixed(2_MiB)};
      if (queue) options.retire_queue = RetireQueue::create(world.driver());
      auto range = MappedRange::create(world.driver(), options);
      range.append(4_MiB);
      std::vector<bool> gone(2, false);
      const auto note = [&](bool value) {
        return [&gone, value](std::size_t offset, std::size_t bytes) {
          for (std::size_t at = offset; at < offset + bytes; at += 2_MiB) gone.at(at / 2_MiB) = value;
        };
      };
      const auto observation = range.observe({note(true), note(false)});
      bool happened = false;
      try {
        FaultPoint fault(FaultKind::allocation, number);
        try {
          change(range);
        } catch (...) {
          happened = fault.happened();
          throw;
        }
        happened = fault.happened();
      } catch (const std::exception&) {
        std::vector<bool> missing(2, true);
        for (const ChunkInfo& each : range.chunks()) missing.at(each.offset / 2_MiB) = false;
        EXPECT_EQ(gone, missing) << what << ", allocation " << number;
      }
      if (!happened) return;
    }
    ADD_FAILURE() << what << ": there must be an end";
  };
  for (const bool queue : {false, true}) {
    change_with("truncate", queue, [](MappedRange& range) { range.truncate(0); });
    change_with("unmap", queue, [](MappedRange& range) { range.unmap(2_MiB, 2_MiB); });
    change_with("replace", queue, [](MappedRange& range) { range.replace(0, range.source()->acquire({}, 2_MiB)); });
  }
}

class LibraryOperations : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(AloneAndLasting, LibraryOperations, testing::Bool(),
                         [](const auto& lasting) { return lasting.param ? "AndAllLater" : "Alone"; });

TEST_P(LibraryOperations, FailAtEachDriverCall) {
  for (const abi::CUresult code : {abi::CUDA_ERROR_OUT_OF_MEMORY, abi::CUDA_ERROR_UNKNOWN})
    for (const LibraryOperation& each : library_operations())
      sweep(each, {FaultKind::driver_call, 1, GetParam(), code});
}

TEST_P(LibraryOperations, FailAtEachAllocation) {
  for (const LibraryOperation& each : library_operations()) sweep(each, {FaultKind::allocation, 1, GetParam()});
}

TEST_P(LibraryOperations, FailAtEachSystemCall) {
  for (const LibraryOperation& each : library_operations())
    for (const FaultKind kind : system_calls) sweep(each, {kind, 1, GetParam()});
}

// A machine that processes share, kept by a first one; the worlds join it. The broker has all memory back in the end.
class SharedMachine {
 public:
  SharedMachine() {
    char folder[] = "/tmp/cuvmm-faults-XXXXXX";
    folder_ = ::mkdtemp(folder);
    first_ = std::make_shared<emulator::api::EmulatedDriver>(stepped_machine(name()));
    free_ = free_memory();
  }
  SharedMachine(const SharedMachine&) = delete;
  SharedMachine& operator=(const SharedMachine&) = delete;
  ~SharedMachine() {
    EXPECT_EQ(free_memory(), free_);
    first_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  [[nodiscard]] std::string name() const { return folder_ + "/machine"; }

 private:
  [[nodiscard]] std::array<std::size_t, 2> free_memory() const {
    std::array<std::size_t, 2> free{};
    for (int device = 0; device < 2; ++device)
      first_->machine().memory_info(device, &free[static_cast<std::size_t>(device)], nullptr);
    return free;
  }
  std::string folder_;
  std::shared_ptr<emulator::api::EmulatedDriver> first_;
  std::array<std::size_t, 2> free_{};
};

// Alone: where every later call fails as well, the broker cannot be reached, which a process does not outlive.
TEST(LibraryOperationsOnASharedMachine, FailAtEachAllocation) {
  const SharedMachine machine;
  for (const LibraryOperation& each : library_operations())
    sweep(each, {FaultKind::allocation, 1, false}, machine.name());
}

TEST(LibraryOperationsOnASharedMachine, FailAtEachSystemCall) {
  const SharedMachine machine;
  for (const LibraryOperation& each : library_operations())
    for (const FaultKind kind : system_calls) sweep(each, {kind, 1, false}, machine.name());
}

}  // namespace
}  // namespace cuvmm::test
