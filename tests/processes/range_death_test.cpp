// Each party of a shared range killed before and after each step of the protocol (docs/sharing.md).
#include <atomic>
#include <cstdio>
#include <filesystem>

#include "child_process.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "kill_point.hpp"
#include "machine.hpp"
#include "shared_state.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using tests::ChildProcess;
using tests::KillPoint;
using tests::Machine;
using tests::SharedState;

enum class Party { publisher, attacher };

// A step of the written protocol, and how to know it.
struct Step {
  const char* name;
  Party who;
  const char* what;
  const char* event;
  int time;
};

constexpr Step steps[] = {
    {"P1", Party::publisher, "listens", "listen", 1},
    {"P2", Party::publisher, "exports", "cuMemExportToShareableHandle", 1},
    {"A1", Party::attacher, "connects", "connect", 1},
    {"A1", Party::attacher, "introduces itself", "send 0x1", 1},
    {"P3", Party::publisher, "welcomes", "send 0x2", 1},
    {"A2", Party::attacher, "asks for terms", "send 0xfff0", 1},
    {"P4", Party::publisher, "gives terms", "send 0xfff1", 1},
    {"A3", Party::attacher, "asks for chunks", "send 0xfff2", 1},
    {"P5", Party::publisher, "sends chunks", "send 0xfff3", 1},
    {"A4", Party::attacher, "imports", "cuMemImportFromShareableHandle", 1},
    {"A5", Party::attacher, "reserves", "cuMemAddressReserve", 1},
    {"A6", Party::attacher, "maps", "cuMemMap", 2},
    {"A7", Party::attacher, "grants", "cuMemSetAccess", 1},
    {"A8", Party::attacher, "tells it has mapped", "send 0xfff4", 1},
    {"G1", Party::publisher, "exports growth", "cuMemExportToShareableHandle", 3},
    {"G2", Party::publisher, "announces growth", "send 0xfff5", 1},
    {"G3", Party::attacher, "asks for growth", "send 0xfff2", 2},
    {"G4", Party::publisher, "sends growth", "send 0xfff3", 2},
    {"G5", Party::attacher, "maps growth", "cuMemMap", 3},
    {"G6", Party::attacher, "tells it has followed", "send 0xfff4", 2},
    {"W1", Party::publisher, "announces withdrawal", "send 0xfff5", 2},
    {"W2", Party::attacher, "unmaps", "cuMemUnmap", 1},
    {"W3", Party::attacher, "frees addresses", "cuMemAddressFree", 1},
};

struct Stage {
  std::atomic<pid_t> publisher = 0;
  std::atomic<pid_t> attacher = 0;
  std::atomic<bool> published = false;
  std::atomic<bool> publisher_ended = false;
  std::atomic<bool> attacher_ended = false;
};

constexpr int came_to_the_end = 0;
constexpr int peer_was_gone = 10;
constexpr int timed_out = 11;

// Loaded machines are slow; one that hangs is found all the same.
Deadline soon() {
  return Deadline::in(100s);
}

template <class Condition>
void wait_until(Condition&& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

MappedRangeOptions exportable() {
  return {.capacity = 64_MiB,
          .memory = {.handle_types = HandleType::posix_file_descriptor},
          .chunks = ChunkPolicy::fixed(2_MiB)};
}

std::string content_at(std::size_t offset) {
  return "the bytes at " + std::to_string(offset);
}

void append_chunk(MappedRange& range) {
  const std::size_t offset = range.append(2_MiB);
  copy_to_device(range, offset, content_at(offset));
}

// The emulated driver opens files when it maps and shares, and notices later which of them are needed no more.
void share_something(const Driver& driver) {
  auto range = MappedRange::create(driver, exportable());
  append_chunk(range);
  const auto handle = ShareableHandle::export_from(range.memory_at(0).memory(), HandleType::posix_file_descriptor);
  static_cast<void>(handle.import_into(driver, {.bytes = 2_MiB}));
}

// A driver whose calls are passed.
Driver watched_driver() {
  return Driver::wrap(std::make_shared<tests::WatchedDriver>(Driver::emulated().shared_interface()));
}

class RangeDeath : public testing::Test {
 protected:
  void SetUp() override { ::setenv("CUVMM_EMULATOR", machine_.settings().c_str(), 1); }
  void TearDown() override { ::unsetenv("CUVMM_EMULATOR"); }
  [[nodiscard]] SocketAddress address() const { return SocketAddress::at_path(machine_.scratch("published") + "/one"); }

  [[nodiscard]] int publish(const std::function<void()>& arm) const;
  [[nodiscard]] int attach(const std::function<void()>& arm) const;
  [[nodiscard]] std::string outcome(const Step& step, bool before, Party victim);

  Machine machine_;
  SharedState<Stage> stage_;
};

// Publishes two chunks, then a third, and withdraws.
int RangeDeath::publish(const std::function<void()>& arm) const {
  const Driver driver = watched_driver();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  share_something(driver);
  const std::size_t open = open_descriptors();
  {
    auto range = MappedRange::create(driver, exportable());
    for (int chunk = 0; chunk < 2; ++chunk) append_chunk(range);
    arm();
    auto publisher = RangePublisher::listen(address(), {}, soon());
    auto published = publisher.publish("range", range);
    stage_->published = true;
    const auto mapped = [&](std::uint32_t chunks) {
      const auto attached = published.attached();
      return stage_->attacher_ended || (!attached.empty() && attached.front().chunks == chunks);
    };
    wait_until([&] { return mapped(2); });
    append_chunk(range);
    published.update(range);
    wait_until([&] { return mapped(3); });
    if (!published.try_withdraw(soon())) return timed_out;
    range.truncate(0);
  }
  share_something(driver);
  return open_descriptors() <= open ? came_to_the_end : 1;
}

bool has_content(const AttachedRange& attached) {
  for (std::size_t offset = 0; offset < attached.size(); offset += 2_MiB) {
    const std::string expected = content_at(offset);
    std::string bytes(expected.size(), ' ');
    copy_from_device(bytes, attached.range(), offset);
    if (bytes != expected) return false;
  }
  return true;
}

// Attaches, follows and detaches; answers how far the publisher went with it.
int use(AttachedRange attached) {
  for (;;) {
    if (!has_content(attached)) return 2;
    const RangeNews news = attached.wait(soon());
    if (news.publisher_gone || news.withdrawn) {
      if (!has_content(attached)) return 3;
      attached.detach();
      return news.publisher_gone ? peer_was_gone : came_to_the_end;
    }
    const auto followed = attached.try_follow(soon());
    if (!followed && followed.failure().kind != ErrorKind::peer_gone) return 4;
  }
}

int RangeDeath::attach(const std::function<void()>& arm) const {
  const Driver driver = watched_driver();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  share_something(driver);
  const std::size_t open = open_descriptors();
  wait_until([&] { return stage_->published || stage_->publisher_ended; });
  arm();
  int result = 0;
  {
    auto attached = AttachedRange::try_attach(driver, address(), "range", {.capacity = 64_MiB}, soon());
    if (attached)
      result = use(std::move(attached).value());
    else if (attached.failure().kind == ErrorKind::peer_gone)
      result = peer_was_gone;
    else if (attached.failure().kind == ErrorKind::timed_out)
      result = timed_out;
    else
      return 5;
  }
  share_something(driver);
  return open_descriptors() <= open ? result : 1;
}

std::string word_for(int result) {
  switch (result) {
    case came_to_the_end:
      return "done";
    case peer_was_gone:
      return "PeerGone";
    case timed_out:
      return "TimedOut";
    default:
      return "WRONG " + std::to_string(result);
  }
}

// What became of the one that was not killed.
std::string RangeDeath::outcome(const Step& step, bool before, Party victim) {
  stage_->published = stage_->publisher_ended = stage_->attacher_ended = false;
  stage_->publisher = stage_->attacher = 0;
  const KillPoint point{step.event, step.time, before};
  const auto arm_for = [&](Party party) {
    wait_until([&] { return stage_->publisher != 0 && stage_->attacher != 0; });
    if (step.who == party) tests::arm(point, victim == Party::publisher ? stage_->publisher : stage_->attacher);
  };
  ChildProcess publisher([&] { return publish([&] { arm_for(Party::publisher); }); });
  ChildProcess attacher([&] { return attach([&] { arm_for(Party::attacher); }); });
  stage_->publisher = publisher.process();
  stage_->attacher = attacher.process();
  ChildProcess& killed = victim == Party::publisher ? publisher : attacher;
  ChildProcess& survivor = victim == Party::publisher ? attacher : publisher;
  if (const int result = killed.wait(); result != -1) return "NOT KILLED " + std::to_string(result);
  (victim == Party::publisher ? stage_->publisher_ended : stage_->attacher_ended) = true;
  return word_for(survivor.wait());
}

TEST_F(RangeDeath, C18_EachPartyIsKilledBeforeAndAfterEachStep) {
  tests::Actor observer(machine_);
  observer.init();
  const std::uint64_t free_bytes = observer.free_bytes();
  std::printf("%-4s %-10s %-22s | %-21s | %s\n", "", "", "", "publisher killed", "attacher killed");
  std::printf("%-4s %-10s %-22s | %-10s %-10s | %-10s %s\n", "step", "who", "does", "before", "after", "before",
              "after");
  for (const Step& step : steps) {
    std::printf("%-4s %-10s %-22s |", step.name, step.who == Party::publisher ? "publisher" : "attacher", step.what);
    for (const Party victim : {Party::publisher, Party::attacher}) {
      for (const bool before : {true, false}) {
        const std::string survivor = outcome(step, before, victim);
        std::printf(" %-10s", survivor.c_str());
        std::fflush(stdout);
        if (victim == Party::attacher) {
          EXPECT_EQ(survivor, "done") << step.name << ": the publisher goes on without";
        } else {
          EXPECT_TRUE(survivor == "PeerGone" || survivor == "TimedOut" || survivor == "done") << step.name << survivor;
        }
        EXPECT_TRUE(tests::becomes_true([&] { return observer.free_bytes() == free_bytes; }))
            << step.name << ": memory is left";
      }
      std::printf(" |");
    }
    std::printf("\n");
  }
  std::filesystem::remove(address().name());  // of the publisher that was killed last
}

}  // namespace
}  // namespace cuvmm::sharing
