// Published ranges on a real driver. Only the children open it: a process that has cannot be forked.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "../processes/child_process.hpp"
#include "../processes/kernels_on_shared_range.hpp"
#include "../processes/shared_state.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using tests::ChildProcess;

struct Stage {
  std::atomic<int> attached = 0;
  std::atomic<bool> go_on = false;
};

Deadline soon() {
  return Deadline::in(200s);
}

template <class Condition>
void wait_until(Condition&& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

// Two chunks, the second of which carries this.
constexpr std::string_view content = "bytes of another process";
constexpr std::size_t chunk = 4_MiB;

class SharedRangeOnGpu : public testing::Test {
 protected:
  int publish(AccessRights rights) {
    const Driver driver = Driver::cuda();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = MappedRange::create(driver, {.capacity = 64_MiB,
                                              .memory = {.handle_types = HandleType::posix_file_descriptor},
                                              .chunks = ChunkPolicy::fixed(chunk)});
    range.append(2 * chunk);
    copy_to_device(range, chunk, content);
    auto publisher = RangePublisher::listen(address_, {}, soon());
    auto published = publisher.publish("range", range, {.rights = rights});
    wait_until([&] { return stage_->go_on.load(); });
    return published.try_withdraw(soon()) ? 0 : 1;
  }

  static bool has_content(const AttachedRange& attached) {
    std::string bytes(content.size(), ' ');
    copy_from_device(bytes, attached.range(), chunk);
    return bytes == content;
  }

  // On the last device, which is another one where there are several.
  int attach(AccessRights rights, const std::function<int(AttachedRange&)>& work) {
    const Driver driver = Driver::cuda();
    const DeviceOrdinal device(driver.device_count() - 1);
    const CurrentContext context(driver.device(device));
    auto attached = AttachedRange::attach(driver, address_, "range",
                                          {.device = device, .rights = rights, .wait_for_publisher = true}, soon());
    std::printf("attached on device %d, read at %#llx\n", device.value, attached.address().value);
    std::fflush(stdout);
    return work(attached);
  }

  const SocketAddress address_ = SocketAddress::abstract("cuvmm-gpu-test-" + std::to_string(::getpid()));
  tests::SharedState<Stage> stage_;
};

TEST_F(SharedRangeOnGpu, IsReadInAnotherProcessAndGivenBack) {
  ChildProcess publisher([&] { return publish(AccessRights::read); });
  ChildProcess attacher([&] {
    return attach(AccessRights::read, [&](AttachedRange& attached) {
      if (!has_content(attached)) return 1;
      if (attached.capacity() != 2 * chunk) return 2;
      ++stage_->attached;
      if (attached.wait(soon()) != RangeNews{.withdrawn = Withdrawal::ended}) return 3;
      attached.detach();
      return 0;
    });
  });
  ChildProcess greedy([&] {
    try {
      return attach(AccessRights::read_write, [](AttachedRange&) { return 1; });
    } catch (const NotPermitted&) {
      return 0;
    }
  });
  EXPECT_EQ(greedy.wait(), 0) << "no more than is offered";
  wait_until([&] { return stage_->attached == 1; });
  stage_->go_on = true;
  EXPECT_EQ(attacher.wait(), 0);
  EXPECT_EQ(publisher.wait(), 0);
}

TEST_F(SharedRangeOnGpu, BytesStayWhenThePublisherIsKilled) {
  ChildProcess publisher([&] { return publish(AccessRights::read); });
  ChildProcess attacher([&] {
    return attach(AccessRights::read, [&](AttachedRange& attached) {
      ++stage_->attached;
      if (!attached.wait(soon()).publisher_gone) return 1;
      return has_content(attached) ? 0 : 2;
    });
  });
  wait_until([&] { return stage_->attached == 1; });
  publisher.kill();
  EXPECT_EQ(attacher.wait(), 0);
}

// A copy may do what a kernel may not, so this is a copy within the device, which the mapping has to allow.
TEST_F(SharedRangeOnGpu, IsWrittenByWhoIsAllowedTo) {
  ChildProcess publisher([&] { return publish(AccessRights::read_write); });
  ChildProcess writer([&] {
    return attach(AccessRights::read_write, [&](AttachedRange& attached) {
      copy_to_device(attached.range(), 0, std::string("written by the attacher"));
      return 0;
    });
  });
  EXPECT_EQ(writer.wait(), 0);
  ChildProcess reader([&] {
    return attach(AccessRights::read, [&](AttachedRange& attached) {
      std::string bytes(23, ' ');
      copy_from_device(bytes, attached.range(), 0);
      return bytes == "written by the attacher" ? 0 : 1;
    });
  });
  EXPECT_EQ(reader.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

// With kernels, on the last device, of what lies on the first.
TEST_F(SharedRangeOnGpu, KernelsReadItAndFaultWhereTheyMayNotStore) {
  ASSERT_TRUE(gpu::kernel_image_runs_on_gpus());
  tests::KernelsOnSharedRange([] { return Driver::cuda(); }, address_).run();
}

}  // namespace
}  // namespace cuvmm::sharing
