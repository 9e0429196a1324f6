// Memory that goes from process to process by the library's handles and connections.
#include <sched.h>

#include <filesystem>

#include "child_process.hpp"
#include "confinement.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "machine.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using tests::ChildProcess;
using tests::deny_taking_descriptors;
using tests::Machine;

constexpr MessageKind request_kind = first_free_kind;
constexpr MessageKind memory_kind = first_free_kind + 1;
constexpr std::string_view content = "bytes of another process";

Deadline soon() {
  return Deadline::in(200s);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class HandlesBetweenProcesses : public testing::Test {
 protected:
  void SetUp() override { ::setenv("CUVMM_EMULATOR", machine_.settings().c_str(), 1); }
  void TearDown() override { ::unsetenv("CUVMM_EMULATOR"); }
  [[nodiscard]] SocketAddress address() const { return SocketAddress::at_path(machine_.scratch("sockets") + "/one"); }

  Machine machine_;
};

// Memory with the content, mapped as long as it lives.
MappedRange range_with_content(const Driver& driver) {
  auto range =
      MappedRange::create(driver, {.capacity = 64_MiB, .memory = {.handle_types = HandleType::posix_file_descriptor}});
  range.append(2_MiB);
  copy_to_device(range, 0, content);
  return range;
}

ShareableHandle exported(const MappedRange& range) {
  return ShareableHandle::export_from(range.memory_at(0).memory(), HandleType::posix_file_descriptor);
}

bool has_content(const Driver& driver, const HandleOfMemory& handle) {
  auto range = MappedRange::create(driver, {.capacity = 64_MiB});
  range.append(SharedPhysicalMemory(handle.handle.import_into(driver, {.bytes = handle.bytes})));
  std::string received(content.size(), ' ');
  copy_from_device(received, range, 0);
  return received == content;
}

volatile std::sig_atomic_t asked_to_stop = 0;

// Serves those who connect with the content until it is asked to stop; answers 0 if its descriptors are as many as
// before.
int serve(const SocketAddress& address) {
  std::signal(SIGTERM, [](int) { asked_to_stop = 1; });
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  const MappedRange range = range_with_content(driver);
  auto listener = DescriptorListener::listen(address, {}, soon());
  static_cast<void>(exported(range));
  const std::size_t open = open_descriptors();
  while (asked_to_stop == 0) {
    auto socket = listener.try_accept(Deadline::in(50ms));
    if (!socket) continue;
    std::vector<HandleOfMemory> handles;
    handles.push_back({exported(range), 2_MiB});
    static_cast<void>(try_send_handles(*socket, handles, soon()));  // who has been killed takes nothing
  }
  static_cast<void>(exported(range));  // the driver notices what was closed
  return open_descriptors() <= open ? 0 : 1;
}

// Connected before it opens the driver: the machine's broker is then a child of the server's namespace, and outlives
// ours.
int attach(const SocketAddress& address) {
  auto socket = DescriptorSocket::connect(address, {.wait_for_listener = true}, soon());
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  const auto handles = receive_handles(socket, soon());
  return handles.size() == 1 && has_content(driver, handles.front()) ? 0 : 1;
}

TEST_F(HandlesBetweenProcesses, CarryBytesAndOutliveTheExporter) {
  auto [one, other] = DescriptorSocket::pair();
  ChildProcess exporter([&, &socket = one] {
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    const MappedRange range = range_with_content(driver);
    std::vector<HandleOfMemory> handles;
    handles.push_back({exported(range), 2_MiB});
    send_handles(socket, handles, soon());
    return 0;
  });
  EXPECT_EQ(exporter.wait(), 0);
  ChildProcess importer([&, &socket = other] {
    const auto handles = receive_handles(socket, soon());
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    return has_content(driver, handles.front()) ? 0 : 1;
  });
  EXPECT_EQ(importer.wait(), 0) << "the descriptor on its way kept the memory";
  one.close();
  other.close();
}

TEST_F(HandlesBetweenProcesses, C16_NeedNoWayToTakeDescriptorsOutOfOtherProcesses) {
  ChildProcess server([&] { return deny_taking_descriptors() ? serve(address()) : 2; });
  ChildProcess client([&] { return deny_taking_descriptors() ? attach(address()) : 2; });
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(server.stop(), 0);
}

TEST_F(HandlesBetweenProcesses, WorkInAPidNamespaceOfTheirOwn) {
  constexpr int not_permitted = 77;
  ChildProcess server([&] { return serve(address()); });
  ChildProcess client([&] {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return not_permitted;
    ChildProcess inside([&] { return ::getpid() == 1 ? attach(address()) : 2; });
    return inside.wait();
  });
  const int result = client.wait();
  if (result == not_permitted) std::puts("a PID namespace is not permitted here: not tried");
  EXPECT_TRUE(result == 0 || result == not_permitted) << result;
  EXPECT_EQ(server.stop(), 0);
}

// A server that leaves each third request unanswered, and ends in the middle of the last one.
TEST_F(HandlesBetweenProcesses, C18_AnExporterThatDropsRepliesOrDiesIsATypedErrorInTime) {
  ChildProcess server([&] {
    auto listener = DescriptorListener::listen(address(), {}, soon());
    auto socket = listener.accept(soon());
    for (int round = 1; round < 100; ++round) {
      const Message request = socket.receive(soon());
      if (round == 90) ::raise(SIGKILL);
      if (round % 3 != 0) socket.reply(request, {.kind = memory_kind, .bytes = request.bytes}, soon());
    }
    return 0;
  });
  auto socket = DescriptorSocket::connect(address(), {.wait_for_listener = true}, soon());
  const std::size_t open = open_descriptors();
  for (int round = 1; round <= 90; ++round) {
    const std::vector bytes{static_cast<std::byte>(round)};
    const bool dropped = round % 3 == 0 && round != 90;
    const auto reply = socket.try_ask({.kind = request_kind, .bytes = bytes}, dropped ? Deadline::in(20ms) : soon());
    if (round == 90) {
      ASSERT_FALSE(reply);
      EXPECT_EQ(reply.failure().kind, ErrorKind::peer_gone);
    } else if (dropped) {
      ASSERT_FALSE(reply);
      EXPECT_EQ(reply.failure().kind, ErrorKind::timed_out);
    } else {
      ASSERT_TRUE(reply) << reply.failure().message();
      EXPECT_EQ(reply->bytes, bytes) << "its own reply, not an older one";
    }
  }
  EXPECT_EQ(open_descriptors(), open - 1) << "the connection";
  EXPECT_EQ(server.wait(), -1);
  std::filesystem::remove(address().name());  // of the killed listener
}

// Twenty clients, each 25 times; one of them is killed half-way.
TEST_F(HandlesBetweenProcesses, C18_FiveHundredExchangesGoOnWhenAClientIsKilled) {
  ChildProcess server([&] { return serve(address()); });
  const auto exchanges = [&] {
    for (int round = 0; round < 25; ++round)
      if (const int result = attach(address()); result != 0) return result;
    return 0;
  };
  std::vector<ChildProcess> clients;
  for (int index = 0; index < 20; ++index) clients.emplace_back(exchanges);
  std::this_thread::sleep_for(100ms);
  clients.front().kill();
  for (auto client = std::next(clients.begin()); client != clients.end(); ++client) EXPECT_EQ(client->wait(), 0);
  EXPECT_EQ(server.stop(), 0) << "no descriptor is left of the one that was killed";
  EXPECT_FALSE(std::filesystem::exists(address().name()));
}

TEST_F(HandlesBetweenProcesses, C18_AllClientsOfAKilledServerLearnOfItInTime) {
  ChildProcess server([&] { return serve(address()); });
  std::vector<ChildProcess> clients;
  for (int index = 0; index < 20; ++index)
    clients.emplace_back([&] {
      const Driver driver = Driver::emulated();
      const CurrentContext context(driver.device(DeviceOrdinal(0)));
      for (int round = 0;; ++round) {
        auto socket = DescriptorSocket::try_connect(address(), {.wait_for_listener = round == 0}, soon());
        if (!socket) return socket.failure().kind == ErrorKind::peer_gone ? 0 : 1;
        const auto handles = try_receive_handles(*socket, soon());
        if (!handles) return handles.failure().kind == ErrorKind::peer_gone ? 0 : 2;
        if (!has_content(driver, handles->front())) return 3;
      }
    });
  std::this_thread::sleep_for(300ms);
  server.kill();
  for (ChildProcess& client : clients) EXPECT_EQ(client.wait(), 0);
  // A restart under the same name replaces the file that the killed one left.
  ChildProcess again([&] { return serve(address()); });
  ChildProcess client([&] { return attach(address()); });
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(again.stop(), 0);
}

}  // namespace
}  // namespace cuvmm::sharing
