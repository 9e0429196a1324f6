// Shared ranges where processes may do little: under a filter of system calls, in a PID namespace, as an ordinary user.
#include <sched.h>

#include <filesystem>

#include "confinement.hpp"
#include "range_on_machine.hpp"

namespace cuvmm::sharing {
namespace {

using namespace tests;

constexpr HandleTypes by_descriptor = HandleType::posix_file_descriptor;
const std::string content = "for those who are confined";

class ConfinedRanges : public testing::Test {
 protected:
  void SetUp() override { use_machine(machine_.settings()); }
  void TearDown() override { ::unsetenv("CUVMM_EMULATOR"); }
  [[nodiscard]] SocketAddress address() const { return SocketAddress::at_path(machine_.scratch("published") + "/one"); }

  [[nodiscard]] int publish() {
    return publish_range(address(), {.handle_types = by_descriptor}, content, *stage_.operator->());
  }
  [[nodiscard]] int attach() const {
    return with_range(address(), [](AttachedRange& range) {
      return text_in(range, content.size()) == content && !range.poll().publisher_gone ? 0 : 1;
    });
  }

  Machine machine_;
  SharedState<RangeStage> stage_;
};

TEST_F(ConfinedRanges, C16_NeedNoWayToTakeDescriptorsOutOfOtherProcesses) {
  ChildProcess publisher([&] { return deny_taking_descriptors() ? publish() : 2; });
  ChildProcess attacher([&] { return deny_taking_descriptors() ? attach() : 2; });
  EXPECT_EQ(attacher.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

// Where the kernel permits no namespace, what a namespace does to a connection is shown in another way: the peer's
// number is one that means nothing here, since that process is gone, and nothing rests on it.
TEST_F(ConfinedRanges, C16_AreAttachedInAPidNamespaceOfTheirOwn) {
  constexpr int not_permitted = 77;
  ChildProcess publisher([&] { return publish(); });
  wait_until([&] { return stage_->published.load(); });  // and the machine's broker is a child of our namespace
  ChildProcess outside([&] {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return not_permitted;
    ChildProcess inside([&] { return ::getpid() == 1 ? attach() : 2; });
    return inside.wait();
  });
  const int result = outside.wait();
  if (result == not_permitted) {
    std::puts("A PID namespace is not permitted here: tried instead is an inherited connection whose maker is gone.");
    auto [one, other] = DescriptorSocket::pair();
    ChildProcess inherits([&, &ours = other, &theirs = one] {
      theirs.close();
      const Driver driver = Driver::emulated();
      const CurrentContext context(driver.device(DeviceOrdinal(0)));
      auto range = AttachedRange::attach(driver, std::move(ours), "range", {.device = DeviceOrdinal(0)}, soon());
      return text_in(range, content.size()) == content ? 0 : 1;
    });
    other.close();
    ChildProcess serves([&, &ours = one] {
      const Driver driver = Driver::emulated();
      const CurrentContext context(driver.device(DeviceOrdinal(0)));
      auto range = MappedRange::create(driver, {.capacity = 2_MiB, .memory = {.handle_types = by_descriptor}});
      range.append(2_MiB);
      copy_to_device(range, 0, content);
      auto unconnected = RangePublisher::unconnected();
      auto published = unconnected.publish("range", range);
      unconnected.serve(std::move(ours));
      wait_until([&] { return unconnected.connected() == 0; });
      return 0;
    });
    one.close();
    EXPECT_EQ(inherits.wait(), 0);
    EXPECT_EQ(serves.wait(), 0);
  } else {
    EXPECT_EQ(result, 0);
  }
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

// Both parties, and the machine's broker, which the first of them starts.
TEST_F(ConfinedRanges, NeedNoPrivilege) {
  if (::geteuid() == 0) {
    const auto directory = std::filesystem::path(machine_.path()).parent_path();
    ASSERT_EQ(::chown(directory.c_str(), ordinary_user, ordinary_user), 0);
    // Where it was built that user may have no way to it.
    const auto broker = directory / "broker";
    std::filesystem::copy_file(CUVMM_BROKER, broker);
    ::setenv("CUVMM_EMULATOR_BROKER", broker.c_str(), 1);
  }
  ChildProcess publisher([&] { return become_ordinary() ? publish() : 2; });
  ChildProcess attacher([&] { return become_ordinary() ? attach() : 2; });
  EXPECT_EQ(attacher.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
  ::unsetenv("CUVMM_EMULATOR_BROKER");
}

// A superuser and an ordinary user are two: who is not named is turned away.
TEST_F(ConfinedRanges, AreNotAttachedByAnotherUserUnlessItIsNamed) {
  if (::geteuid() != 0) {
    std::puts(
        "Not a superuser, so there is one user only: tried is that a name which is not this user's changes nothing.");
    ChildProcess publisher([&] { return publish(); });
    ChildProcess attacher([&] {
      return with_range(address(), [](AttachedRange&) { return 0; },
                        {.device = DeviceOrdinal(0), .connection = {.other_users = {ordinary_user}}});
    });
    EXPECT_EQ(attacher.wait(), 0);
    stage_->go_on = true;
    EXPECT_EQ(publisher.wait(), 0);
    return;
  }
  ChildProcess publisher([&] { return publish(); });
  wait_until([&] { return stage_->published.load(); });
  ChildProcess stranger([&] {
    const Driver driver = Driver::emulated();  // while the machine's directory is open to the process
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    if (!become_ordinary()) return 2;
    const auto attached = AttachedRange::try_attach(driver, address(), "range", {}, soon());
    return !attached && attached.failure().kind == ErrorKind::not_permitted ? 0 : 1;
  });
  EXPECT_EQ(stranger.wait(), 0);
  stage_->go_on = true;
  EXPECT_EQ(publisher.wait(), 0);
}

}  // namespace
}  // namespace cuvmm::sharing
