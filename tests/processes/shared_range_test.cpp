// Ranges that one process publishes and others attach to.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "child_process.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "machine.hpp"
#include "shared_state.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using tests::ChildProcess;
using tests::Machine;
using tests::SharedState;

Deadline soon() {
  return Deadline::in(200s);
}

template <class Condition>
void wait_until(Condition&& condition) {
  while (!condition()) std::this_thread::sleep_for(100us);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::size_t addresses_in_use() {  // pages
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

struct Stage {
  std::atomic<int> published = 0;  // how often
  std::atomic<int> attached = 0;   // how many have, or how often
  std::atomic<bool> go_on = false;
};

class SharedRanges : public testing::Test {
 protected:
  explicit SharedRanges(const std::string& settings = "memory=2GiB,devices=2") : machine_(settings) {}
  void SetUp() override { ::setenv("CUVMM_EMULATOR", machine_.settings().c_str(), 1); }
  void TearDown() override {
    ::unsetenv("CUVMM_EMULATOR");
    EXPECT_FALSE(std::filesystem::exists(address().name())) << "no file is left";
  }
  [[nodiscard]] SocketAddress address() const { return SocketAddress::at_path(machine_.scratch("published") + "/one"); }

  // Publishes a range with that content, as long as the stage does not go on; then withdraws.
  [[nodiscard]] int publish(const std::string& content, AccessRights rights = AccessRights::read) const;

  // Attaches and stays, until it is killed.
  [[nodiscard]] int attach_for_ever() const;

  Machine machine_;
  SharedState<Stage> stage_;
};

MappedRange range_with(const Driver& driver, const std::string& content) {
  auto range =
      MappedRange::create(driver, {.capacity = 64_MiB, .memory = {.handle_types = HandleType::posix_file_descriptor}});
  range.append(2_MiB);
  copy_to_device(range, 0, content);
  return range;
}

int SharedRanges::publish(const std::string& content, AccessRights rights) const {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  auto range = range_with(driver, content);
  auto publisher = RangePublisher::listen(address(), {}, soon());
  auto published = publisher.publish("range", range, {.rights = rights});
  ++stage_->published;
  wait_until([&] { return stage_->go_on.load(); });
  return published.try_withdraw(soon()) ? 0 : 1;
}

std::string bytes_of(const AttachedRange& attached, std::size_t count) {
  std::string bytes(count, ' ');
  copy_from_device(bytes, attached.range(), 0);
  return bytes;
}

// Runs the work with a range that is attached.
int with_attached(const SocketAddress& address, AttachOptions options,
                  const std::function<int(const Driver&, AttachedRange&)>& work) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(options.device.value_or(DeviceOrdinal(0))));
  options.wait_for_publisher = true;
  auto attached = AttachedRange::attach(driver, address, "range", options, soon());
  return work(driver, attached);
}

int SharedRanges::attach_for_ever() const {
  return with_attached(address(), {}, [&](const Driver&, AttachedRange&) {
    ++stage_->attached;
    for (;;) ::pause();
    return 0;
  });
}

TEST_F(SharedRanges, AreReadOnAnotherDeviceAndAStoreIsRefused) {
  ChildProcess publisher([&] { return publish("from device 0", AccessRights::read_write); });
  const auto store = [](const Driver&, AttachedRange& attached) {
    if (bytes_of(attached, 13) != "from device 0") return 2;
    try {
      copy_to_device(attached.range(), 1_MiB, std::string("a store"));
    } catch (const Error&) {
      return 1;
    }
    return 0;
  };
  ChildProcess reader([&] { return with_attached(address(), {.device = DeviceOrdinal(1)}, store); });
  EXPECT_EQ(reader.wait(), 1) << "read-only";
  ChildProcess writer([&] {
    return with_attached(address(), {.device = DeviceOrdinal(1), .rights = AccessRights::read_write}, store);
  });
  EXPECT_EQ(writer.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

TEST_F(SharedRanges, C32_ReserveWhatIsThereAndNotTheRoomOfThePublisher) {
  ChildProcess publisher([&] { return publish("of 64 MiB of addresses"); });
  ChildProcess attacher([&] {
    return with_attached(address(), {}, [](const Driver&, AttachedRange& attached) {
      return attached.capacity() == 2_MiB && attached.range().mapped_bytes() == 2_MiB ? 0 : 1;
    });
  });
  EXPECT_EQ(attacher.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

TEST_F(SharedRanges, BytesStayWhenThePublisherIsKilledAndAnotherMayTakeItsName) {
  ChildProcess first([&] { return publish("of the first"); });
  ChildProcess attacher([&] {
    return with_attached(address(), {}, [&](const Driver& driver, AttachedRange& old) {
      ++stage_->attached;
      const RangeNews news = old.wait(soon());
      if (!news.publisher_gone || news.withdrawn || bytes_of(old, 12) != "of the first") return 1;
      ++stage_->attached;
      const AttachedRange next =
          AttachedRange::attach(driver, address(), "range", {.wait_for_publisher = true}, soon());
      return bytes_of(next, 13) == "of the second" && bytes_of(old, 12) == "of the first" ? 0 : 2;
    });
  });
  wait_until([&] { return stage_->attached == 1; });
  first.kill();
  wait_until([&] { return stage_->attached == 2; });
  EXPECT_TRUE(std::filesystem::exists(address().name())) << "the file of the killed one";
  ChildProcess second([&] { return publish("of the second"); });
  EXPECT_EQ(attacher.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(second.wait(), 0);
}

TEST_F(SharedRanges, AKilledAttacherHoldsUpNoWithdrawal) {
  ChildProcess publisher([&] { return publish("some bytes"); });
  ChildProcess attacher([&] { return attach_for_ever(); });
  wait_until([&] { return stage_->attached == 1; });
  stage_->go_on = true;
  attacher.kill();
  EXPECT_EQ(publisher.wait(), 0);
}

TEST_F(SharedRanges, EndInAnyOrder) {
  ChildProcess publisher([&] { return publish("both are killed"); });
  ChildProcess attacher([&] { return attach_for_ever(); });
  wait_until([&] { return stage_->attached == 1; });
  publisher.kill();
  attacher.kill();
  std::filesystem::remove(address().name());  // nobody comes after them; the machine ends by itself, with its memory
}

TEST_F(SharedRanges, SixtyFourProcessesAttachAtOnce) {
  constexpr int many = 64;
  ChildProcess publisher([&] { return publish("for all of them"); });
  std::vector<ChildProcess> attachers;
  for (int index = 0; index < many; ++index)
    attachers.emplace_back([&] {
      return with_attached(address(), {.device = DeviceOrdinal(0)}, [&](const Driver&, AttachedRange& attached) {
        ++stage_->attached;
        wait_until([&] { return stage_->attached == many; });
        if (bytes_of(attached, 15) != "for all of them") return 1;
        const RangeNews news = attached.wait(soon());
        attached.detach();
        return news.withdrawn == Withdrawal::ended ? 0 : 2;
      });
    });
  wait_until([&] { return stage_->attached == many; });
  stage_->go_on = true;
  for (ChildProcess& each : attachers) EXPECT_EQ(each.wait(), 0);
  EXPECT_EQ(publisher.wait(), 0);
}

// Descriptors and addresses of a process that does something again and again.
class Flat {
 public:
  // After the first rounds, when all is there that stays.
  void begin() {
    descriptors_ = open_descriptors();
    pages_ = addresses_in_use();
  }
  [[nodiscard]] bool stays() const {
    constexpr std::size_t some_pages = 2048;  // 8 MiB, of an allocator that grows
    return open_descriptors() <= descriptors_ && addresses_in_use() <= pages_ + some_pages;
  }

 private:
  std::size_t descriptors_ = 0;
  std::size_t pages_ = 0;
};

TEST_F(SharedRanges, PublishAttachAndDetachAgainAndAgainTakesNothing) {
  const char* const longer = std::getenv("CUVMM_TEST_LONG");
  const int rounds = longer != nullptr && *longer == '1' ? 10'000 : 2'000;
  constexpr int first_rounds = 100;
  tests::Actor observer(machine_);
  observer.init();
  const std::uint64_t free_bytes = observer.free_bytes();
  ChildProcess publisher([&] {
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = range_with(driver, "again");
    auto publisher_of_all = RangePublisher::listen(address(), {}, soon());
    Flat flat;
    for (int round = 1; round <= rounds; ++round) {
      auto published = publisher_of_all.publish("range", range);
      stage_->published = round;
      wait_until([&] { return stage_->attached == round; });
      if (!published.try_withdraw(soon())) return 1;
      if (round == first_rounds) flat.begin();
    }
    return flat.stays() ? 0 : 2;
  });
  ChildProcess attacher([&] {
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    Flat flat;
    for (int round = 1; round <= rounds; ++round) {
      wait_until([&] { return stage_->published == round; });
      auto attached = AttachedRange::attach(driver, address(), "range", {}, soon());
      if (bytes_of(attached, 5) != "again" || attached.generation() != static_cast<std::uint64_t>(round)) return 1;
      stage_->attached = round;
      attached.detach();
      if (round == first_rounds) flat.begin();
    }
    return flat.stays() ? 0 : 2;
  });
  EXPECT_EQ(attacher.wait(), 0);
  EXPECT_EQ(publisher.wait(), 0);
  EXPECT_TRUE(tests::becomes_true([&] { return observer.free_bytes() == free_bytes; }));
}

}  // namespace
}  // namespace cuvmm::sharing
