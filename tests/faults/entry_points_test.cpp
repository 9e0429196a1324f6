// Each entry point of the emulated driver with each of its allocations and system calls failing: it answers the right
// kind of code, what there was is as it was, nothing leaks, and the same call works once nothing fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "conformance/cases/drivers.hpp"
#include "entry_point_world.hpp"
#include "fault_points.hpp"

namespace cuvmm::test {

EntryPointWorld::EntryPointWorld()
    : environment([] {
        ::setenv("CUVMM_EMULATOR", "scheduler=stepped", 1);
        return conformance::emulated_driver(2);
      }()) {
  for (int number = 0; number < 1024; ++number)
    if (::fcntl(number, F_GETFD) >= 0) open_before.insert(number);
  const auto failed = environment.begin(conformance::Start::context);
  EXPECT_FALSE(failed) << *failed;
  objects = conformance::make_objects(environment);
  EXPECT_EQ(environment.notes(), "");
}

EntryPointWorld::~EntryPointWorld() {
  // What was given out: the writing ends of pipes. The driver's own are its own to close.
  for (int number = 3; number < 1024; ++number) {
    struct stat status {};
    const bool given_out = ::fstat(number, &status) == 0 && S_ISFIFO(status.st_mode) &&
                           (::fcntl(number, F_GETFL) & O_ACCMODE) == O_WRONLY && !open_before.contains(number);
    if (given_out) ::close(number);
  }
}

emulator::api::EmulatedDriver& EntryPointWorld::emulated() const {
  return dynamic_cast<emulator::api::EmulatedDriver&>(environment.driver());
}

std::string EntryPointWorld::state() const {
  std::string text;
  const auto add = [&](const char* what, std::size_t count) {
    text += std::string(what) + " " + std::to_string(count) + ", ";
  };
  emulator::api::Machine& machine = emulated().machine();
  const auto objects_alive = machine.live_objects();
  add("handles", objects_alive.handles);
  add("mappings", objects_alive.mappings);
  add("reservations", objects_alive.reservations);
  add("allocations", objects_alive.allocations);
  add("heap allocations", objects_alive.heap_allocations);
  add("exports", objects_alive.exports);
  add("host ranges", objects_alive.host_ranges);
  const auto handles = emulated().live_handles();
  add("streams", handles.streams);
  add("events", handles.events);
  add("graphs", handles.graphs);
  for (int device = 0; device < 2; ++device) {
    std::size_t free = 0;
    machine.memory_info(device, &free, nullptr);
    add("free", free);
    unsigned flags = 0;
    int active = 0;
    (void)environment->cuDevicePrimaryCtxGetState(device, &flags, &active);
    add("primary flags", flags);
    add("active", static_cast<std::size_t>(active));
  }
  CUcontext current = nullptr;
  (void)environment->cuCtxGetCurrent(&current);
  add("current context is the first", current == objects.context ? 1U : 0U);
  CUdevice device = -1;
  text += "its device is told: " + std::to_string(static_cast<int>(environment->cuCtxGetDevice(&device)));
  return text;
}

namespace {

std::vector<EntryPointCase> all_cases() {
  std::vector<EntryPointCase> all;
  for (const conformance::EntryPointCall& each : conformance::entry_point_calls())
    all.push_back({std::string(driver::name(each.entry_point)), {}, [call = each.call](EntryPointWorld& world) {
                     return call(world.environment.driver(), world.objects);
                   }});
  for (EntryPointCase& each : entry_point_variants()) all.push_back(std::move(each));
  return all;
}

bool right_kind(FaultKind kind, CUresult code) {
  if (kind == FaultKind::allocation) return code == CUDA_ERROR_OUT_OF_MEMORY;
  if (needs_descriptor(kind)) return code == CUDA_ERROR_OPERATING_SYSTEM;
  return code == CUDA_ERROR_OPERATING_SYSTEM || code == CUDA_ERROR_OUT_OF_MEMORY;
}

struct Attempt {
  bool happened = false;
  CUresult code = CUDA_SUCCESS;
};

// Which step fails: the n-th of a kind, alone or with all that come later, so that undoing what was done fails, too.
struct Step {
  FaultKind kind = FaultKind::allocation;
  std::uint64_t number = 1;
  bool lasting = false;
};

Attempt attempt(EntryPointWorld& world, const EntryPointCase& subject, const Step& step) {
  FaultPoint point(step.kind, step.number, step.lasting);
  const CUresult code = subject.call(world);
  return {point.happened(), code};
}

// Work that a call runs or waits for has no other way to fail, where memory stays away.
bool fails_as_work(const Step& step, CUresult code) {
  return step.lasting && step.kind == FaultKind::allocation && code == CUDA_ERROR_LAUNCH_FAILED;
}

// Fails it again and again: blocks that each failure leaves behind add up, what a first one kept for later does not.
// Answers whether it works in the end, since what was kept serves it now.
bool works_after_more_failures(EntryPointWorld& world, const EntryPointCase& subject, const Step& step,
                               CUresult expected) {
  std::int64_t blocks = 0;
  for (int round = 0; round < 4; ++round) {
    const std::int64_t before = live_blocks();
    const CUresult code = attempt(world, subject, step).code;
    if (code == expected || fails_as_work(step, code)) return true;
    blocks = live_blocks() - before;
  }
  EXPECT_EQ(blocks, 0) << "blocks leaked by a failure";
  return false;
}

// One world, one failing step. Answers whether there is such a step.
bool fail_once(const EntryPointCase& subject, const Step& step, CUresult expected) {
  EntryPointWorld world;
  if (subject.prepare) subject.prepare(world);
  EXPECT_EQ(world.environment.notes(), "");
  const std::string before = world.state();
  const ProcessState process_before = ProcessState::now();
  const Attempt first = attempt(world, subject, step);
  if (!first.happened) {
    EXPECT_EQ(first.code, expected);
    return false;
  }
  FaultPointTally::add(step.kind);
  if (first.code == expected) return true;  // it did without
  if (fails_as_work(step, first.code)) return true;
  // Nor has a kernel whose windows cannot be made.
  if (step.kind == FaultKind::mmap && subject.name.find("kernel") != std::string::npos) {
    EXPECT_EQ(first.code, CUDA_ERROR_LAUNCH_FAILED);
    return true;
  }
  EXPECT_TRUE(right_kind(step.kind, first.code)) << first.code << ": " << world.environment->explanation();
  EXPECT_EQ(world.state(), before);
  const ProcessState process = ProcessState::now();
  EXPECT_EQ(process.descriptors, process_before.descriptors);
  // Where rights that the host had cannot be set again, it has none: of mprotect, undoing needs the same call.
  if (!(step.lasting && step.kind == FaultKind::mprotect)) {
    EXPECT_EQ(process.host_views, process_before.host_views);
  }
  if (works_after_more_failures(world, subject, step, expected)) return true;
  EXPECT_EQ(subject.call(world), expected) << "a retry: " << world.environment->explanation();
  return true;
}

int failures() {
  const auto* result = testing::UnitTest::GetInstance()->current_test_info()->result();
  return result->total_part_count();
}

void sweep(const EntryPointCase& subject, FaultKind kind, bool lasting) {
  FaultPointTally::add_operation();
  CUresult expected = CUDA_SUCCESS;
  {
    EntryPointWorld world;
    if (subject.prepare) subject.prepare(world);
    expected = subject.call(world);
  }
  const ProcessState before = ProcessState::now();
  std::int64_t blocks = -1;
  const int failures_before = failures();
  for (std::uint64_t number = 1; number < 2000; ++number) {
    SCOPED_TRACE(subject.name + ", " + name_of(kind) + " " + std::to_string(number));
    const bool happened = fail_once(subject, {kind, number, lasting}, expected);
    const ProcessState after = ProcessState::now();
    EXPECT_EQ(to_string(after), to_string(before)) << "left by the driver";
    if (blocks < 0) blocks = live_blocks();
    EXPECT_EQ(live_blocks(), blocks) << "blocks left by the driver";
    if (!happened) return;
    if (failures() > failures_before) return;
  }
  ADD_FAILURE() << "there must be an end";
}

TEST(EntryPoints, FailAtEachAllocation) {
  for (const EntryPointCase& each : all_cases()) sweep(each, FaultKind::allocation, false);
}

TEST(EntryPoints, FailWithoutMemoryFromEachAllocationOn) {
  for (const EntryPointCase& each : all_cases()) sweep(each, FaultKind::allocation, true);
}

TEST(EntryPoints, FailAtEachSystemCall) {
  for (const EntryPointCase& each : all_cases())
    for (const FaultKind kind : system_calls) sweep(each, kind, false);
}

TEST(EntryPoints, FailFromEachSystemCallOn) {
  for (const EntryPointCase& each : all_cases())
    for (const FaultKind kind : system_calls) {
      // A kernel's window that the system does not take back in five tries is left: nobody can be told.
      const bool lost = kind == FaultKind::munmap && each.name.find("kernel") != std::string::npos;
      if (!lost) sweep(each, kind, true);
    }
}

}  // namespace
}  // namespace cuvmm::test
