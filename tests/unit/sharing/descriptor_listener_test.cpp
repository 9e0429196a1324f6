#include "cuvmm/sharing/descriptor_listener.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "open_descriptors.hpp"
#include "raw_packets.hpp"
#include "sharing/content.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using cuvmm::test::open_descriptors;

constexpr MessageKind greeting = first_free_kind;

Deadline soon() {
  return Deadline::in(120s);
}
Deadline at_once() {
  return Deadline::in(20ms);
}

// A listener with a thread that accepts until the test ends, and greets whoever is welcome.
class Greeter {
 public:
  explicit Greeter(const SocketAddress& address, ListenerOptions options = {})
      : listener_(DescriptorListener::listen(address, with_refusals(std::move(options)), soon())),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;
  ~Greeter() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
  }
  [[nodiscard]] std::vector<Failure> refusals() {  // after stop()
    stop();
    return refusals_;
  }

 private:
  ListenerOptions with_refusals(ListenerOptions options) {
    options.on_refusal = [this](const Failure& failure) { refusals_.push_back(failure); };
    return options;
  }
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested())
      if (auto accepted = listener_.try_accept(at_once())) {
        static_cast<void>(accepted->try_send({.kind = greeting}, soon()));
        greeted_.push_back(std::move(accepted).value());
      }
  }

  std::vector<Failure> refusals_;
  std::vector<DescriptorSocket> greeted_;
  DescriptorListener listener_;
  std::jthread thread_;
};

class ListenerTest : public testing::Test {
 protected:
  [[nodiscard]] SocketAddress address(const std::string& name = "socket") const {
    return SocketAddress::at_path(directory_.path("private/" + name));
  }
  static MessageKind greeted_at(const SocketAddress& address, const ConnectionOptions& options = {}) {
    auto socket = DescriptorSocket::connect(address, options, soon());
    return socket.receive(soon()).kind;
  }
  static Failure refused_at(const SocketAddress& address, const ConnectionOptions& options = {}) {
    const auto socket = DescriptorSocket::try_connect(address, options, soon());
    if (!socket) return socket.failure();
    ADD_FAILURE() << "it was welcome";
    return {};
  }

  cuvmm::tests::TemporaryDirectory directory_;
};

TEST_F(ListenerTest, WelcomesProcessesOfThisUser) {
  for (const SocketAddress& each : {address(), SocketAddress::abstract("cuvmm-test-" + std::to_string(::getpid()))}) {
    const std::size_t open = open_descriptors();
    {
      const Greeter greeter(each);
      auto socket = DescriptorSocket::connect(each, {}, soon());
      EXPECT_EQ(socket.receive(soon()).kind, greeting);
      EXPECT_EQ(socket.peer().process, ::getpid());
      ASSERT_TRUE(socket.peer_locality());
      EXPECT_EQ(*socket.peer_locality(), Locality::here());
      EXPECT_NE(::fcntl(socket.descriptor(), F_GETFD) & FD_CLOEXEC, 0);
    }
    EXPECT_EQ(open_descriptors(), open);
  }
  EXPECT_FALSE(std::filesystem::exists(address().name())) << "it is removed";
  EXPECT_EQ(std::filesystem::status(directory_.path("private")).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(ListenerTest, ATokenHasToBeTheSame) {
  Greeter greeter(address(), {.connection = {.token = "secret"}});
  for (const std::string token : {"", "secreT", "secret1", "secre"}) {
    const Failure failure = refused_at(address(), {.token = token});
    EXPECT_EQ(failure.kind, ErrorKind::not_permitted);
    EXPECT_NE(failure.reason.find("token"), std::string::npos) << failure.message();
  }
  EXPECT_EQ(greeted_at(address(), {.token = "secret"}), greeting);
  EXPECT_EQ(greeter.refusals().size(), 4u);
  EXPECT_EQ(refused_at(address(), {.token = std::string(5000, 'x')}).kind, ErrorKind::invalid_use);
}

TEST_F(ListenerTest, C19_AProcessOfAnotherHostIsRefusedUpFrontAndBothAreNamed) {
  const Locality elsewhere{"berta", "another boot", "26:1"};
  Greeter greeter(address(), {.connection = {.locality = Locality{"anna", "a boot", "26:1"}}});
  const Failure failure = refused_at(address(), {.locality = elsewhere});
  EXPECT_EQ(failure.kind, ErrorKind::not_supported);
  EXPECT_NE(failure.message().find("anna"), std::string::npos) << failure.message();
  EXPECT_NE(failure.message().find("berta"), std::string::npos) << failure.message();
  EXPECT_EQ(greeted_at(address(), {.locality = Locality{"berta", "a boot", "26:1"}}), greeting);
  EXPECT_EQ(greeter.refusals().size(), 1u);
}

TEST_F(ListenerTest, ALocalityThatIsTooLongIsRefusedByWhoWouldTellIt) {
  const Locality longest{std::string(2048, 'x'), "a boot", std::string(2048, 'y')};
  Locality too_long = longest;
  too_long.host += 'x';
  EXPECT_THROW(static_cast<void>(DescriptorListener::listen(address(), {.connection = {.locality = too_long}}, soon())),
               InvalidUse);
  const Greeter greeter(address(), {.connection = {.locality = longest}});
  const Failure failure = refused_at(address(), {.locality = too_long});
  EXPECT_EQ(failure.kind, ErrorKind::invalid_use);
  EXPECT_NE(failure.message().find("locality.host of 2049 bytes"), std::string::npos) << failure.message();
  EXPECT_EQ(greeted_at(address(), {.locality = longest}), greeting);
}

TEST_F(ListenerTest, AnotherUserIsRefusedUnlessNamed) {
  if (::geteuid() != 0) {
    std::puts("only root can become another user: an ordinary user's listener is not tried from another one");
    return;
  }
  const auto name = SocketAddress::abstract("cuvmm-test-user-" + std::to_string(::getpid()));
  const auto connects_as_nobody = [&](const ListenerOptions& options) {
    auto listener = DescriptorListener::listen(name, options, soon());
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
      const auto socket = DescriptorSocket::try_connect(name, {.other_users = {0}}, soon());
      ::_exit(socket ? 0 : socket.failure().kind == ErrorKind::not_permitted ? 1 : 2);
    }
    static_cast<void>(listener.try_accept(Deadline::in(300ms)));
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(connects_as_nobody({}), 1);
  EXPECT_EQ(connects_as_nobody({.connection = {.other_users = {65534}}}), 0);
}

// Somebody who has connected, and has introduced itself or says nothing.
class Newcomer {
 public:
  explicit Newcomer(const SocketAddress& address) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, address.name().c_str());
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  void introduce() const {
    PacketHeader header = test::only_packet(hello_.size());
    header.kind = hello_kind;
    test::send_raw(socket_.get(), test::packet_of(header, hello_));
  }

 private:
  UniqueDescriptor socket_;
  test::Bytes hello_ = encode(Introduction{Locality::here(), {}});  // while there are descriptors
};

std::vector<pollfd> readable_soon(const DescriptorListener& listener) {
  std::vector<pollfd> sockets;
  for (const int each : listener.descriptors()) sockets.push_back({each, POLLIN, 0});
  return sockets;
}

TEST_F(ListenerTest, ALackOfDescriptorsKeepsThoseWaitingForWhomThereIsNone) {
  auto listener = DescriptorListener::listen(address(), {}, soon());
  const Newcomer first(address());
  const Newcomer second(address());
  first.introduce();
  second.introduce();
  std::vector<DescriptorSocket> accepted;
  {
    const cuvmm::test::DescriptorLimit limit(1);
    auto one = listener.try_accept(Deadline::at(Deadline::Clock::now()));
    ASSERT_TRUE(one) << one.failure().message();
    accepted.push_back(std::move(one).value());
    const auto none = listener.try_accept(Deadline::at(Deadline::Clock::now()));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.failure().kind, ErrorKind::out_of_descriptors) << none.failure().message();
    EXPECT_EQ(listener.try_accept(at_once()).failure().kind, ErrorKind::out_of_descriptors) << "it was waited for";
  }
  EXPECT_TRUE(listener.try_accept(soon())) << "the other one was not turned away";
}

TEST_F(ListenerTest, ALackOfDescriptorsKeepsNobodyWaitingWhoHasConnected) {
  auto listener = DescriptorListener::listen(address(), {}, soon());
  const Newcomer first(address());
  const Newcomer second(address());
  const cuvmm::test::DescriptorLimit limit(1);
  EXPECT_EQ(listener.try_accept(Deadline::at(Deadline::Clock::now())).failure().kind, ErrorKind::out_of_descriptors);
  std::jthread later([&] { first.introduce(); });
  EXPECT_TRUE(listener.try_accept(soon())) << "though there is none for the second one yet";
}

TEST_F(ListenerTest, TheLastDescriptorIsEnoughToConnect) {
  auto listener = DescriptorListener::listen(address(), {}, soon());
  const auto connected_with = [&](unsigned descriptors) {
    const pid_t child = ::fork();
    if (child == 0) {
      const cuvmm::test::DescriptorLimit limit(descriptors);
      const auto socket = DescriptorSocket::try_connect(address(), {}, soon());
      ::_exit(socket ? 0 : socket.failure().kind == ErrorKind::out_of_descriptors ? 1 : 2);
    }
    if (descriptors != 0) static_cast<void>(listener.try_accept(soon()));
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(connected_with(1), 0) << "it must not seem to be another host";
  EXPECT_EQ(connected_with(0), 1);
}

TEST_F(ListenerTest, ALackOfDescriptorsIsNotAnnouncedAllTheTime) {
  auto listener = DescriptorListener::listen(address(), {}, soon());
  const Newcomer first(address());
  auto before = readable_soon(listener);
  EXPECT_EQ(::poll(before.data(), before.size(), 0), 1);
  {
    const cuvmm::test::DescriptorLimit limit(0);
    for (int round = 0; round < 3; ++round) {
      EXPECT_FALSE(listener.try_accept(Deadline::at(Deadline::Clock::now())));
      auto resting = readable_soon(listener);
      ASSERT_EQ(resting.size(), 1u);
      EXPECT_NE(resting.front().fd, before.front().fd) << "not the socket, which is readable all the time";
      EXPECT_EQ(::poll(resting.data(), resting.size(), 120'000), 1) << "it is announced when to try again";
    }
  }
  EXPECT_EQ(listener.try_accept(Deadline::at(Deadline::Clock::now())).failure().kind, ErrorKind::timed_out);
  auto after = readable_soon(listener);
  EXPECT_EQ(after.size(), 2u);
  EXPECT_EQ(after.front().fd, before.front().fd);
  first.introduce();
  EXPECT_TRUE(listener.try_accept(soon()));
}

TEST_F(ListenerTest, OneThatSaysNothingKeepsNobodyWaiting) {
  auto listener = DescriptorListener::listen(address(), {.introduction = 60s}, soon());
  const UniqueDescriptor silent(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, address().name().c_str());
  ASSERT_EQ(::connect(silent.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  std::jthread client([&] { EXPECT_TRUE(DescriptorSocket::try_connect(address(), {}, soon())); });
  EXPECT_TRUE(listener.try_accept(soon()));
}

TEST_F(ListenerTest, OneThatSaysNothingIsTurnedAwayInTheEnd) {
  Greeter greeter(address(), {.introduction = 30ms});
  const UniqueDescriptor silent(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, address().name().c_str());
  ASSERT_EQ(::connect(silent.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  auto socket = DescriptorSocket::adopt(UniqueDescriptor(::dup(silent.get())));
  const auto told = socket.try_receive(soon());
  ASSERT_FALSE(told);
  EXPECT_EQ(told.failure().kind, ErrorKind::timed_out) << told.failure().message();
}

TEST_F(ListenerTest, OneThatIsHostileIsToldWhatIsWrongAndDropped) {
  Greeter greeter(address());
  const auto told = [&](const test::Bytes& packet) {
    const UniqueDescriptor raw(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, address().name().c_str());
    EXPECT_EQ(::connect(raw.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    test::send_raw(raw.get(), packet);
    auto socket = DescriptorSocket::adopt(UniqueDescriptor(::dup(raw.get())));
    const auto answer = socket.try_receive(soon());
    return answer ? ErrorKind::driver_failure : answer.failure().kind;
  };
  EXPECT_EQ(told(test::Bytes(8)), ErrorKind::protocol_violation);
  EXPECT_EQ(told(test::packet_of(test::only_packet(0))), ErrorKind::protocol_violation) << "it is no introduction";
  PacketHeader much = test::only_packet(4);
  much.total_bytes = 1 << 20;
  much.last = false;
  EXPECT_EQ(told(test::packet_of(much, test::Bytes(4))), ErrorKind::protocol_violation) << "more than a stranger may";
  EXPECT_EQ(greeted_at(address()), greeting);
}

TEST_F(ListenerTest, NobodyThereIsToldAtOnceOrWaitedFor) {
  EXPECT_EQ(refused_at(address()).kind, ErrorKind::peer_gone);
  const auto in_vain = DescriptorSocket::try_connect(address(), {.wait_for_listener = true}, at_once());
  ASSERT_FALSE(in_vain);
  EXPECT_EQ(in_vain.failure().kind, ErrorKind::timed_out);
  std::jthread later([&] {
    std::this_thread::sleep_for(20ms);
    auto listener = DescriptorListener::listen(address(), {}, soon());
    EXPECT_TRUE(listener.try_accept(soon()));
  });
  EXPECT_TRUE(DescriptorSocket::try_connect(address(), {.wait_for_listener = true}, soon()));
}

TEST_F(ListenerTest, AListenerThatDoesNotAcceptIsATimeOut) {
  auto listener = DescriptorListener::listen(address(), {}, soon());
  const auto socket = DescriptorSocket::try_connect(address(), {}, at_once());
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.failure().kind, ErrorKind::timed_out);
  EXPECT_EQ(listener.try_accept(at_once()).failure().kind, ErrorKind::timed_out) << "the one who gave up is no guest";
}

TEST_F(ListenerTest, AFileThatIsLeftBehindIsReplacedAndALiveOneIsNot) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto listener = DescriptorListener::listen(address(), {}, soon());
    ::_exit(std::filesystem::exists(address().name()) ? 0 : 1);  // as if it were killed
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(address().name()));
  {
    const Greeter greeter(address());
    EXPECT_EQ(greeted_at(address()), greeting);
    EXPECT_THROW(static_cast<void>(DescriptorListener::listen(address(), {}, soon())), InvalidUse);
    EXPECT_EQ(greeted_at(address()), greeting) << "the probe did no harm";
  }
  std::ofstream(address("file").name()) << "somebody's";
  EXPECT_THROW(static_cast<void>(DescriptorListener::listen(address("file"), {}, soon())), InvalidUse);
  EXPECT_TRUE(std::filesystem::exists(address("file").name())) << "not replaced";
}

TEST_F(ListenerTest, RemovesItsOwnFileAlone) {
  auto first = DescriptorListener::listen(address(), {}, soon());
  std::filesystem::remove(address().name());
  auto second = DescriptorListener::listen(address(), {}, soon());
  first.close();
  EXPECT_TRUE(std::filesystem::exists(address().name())) << "it is the second one's";
  const pid_t child = ::fork();
  if (child == 0) {
    second.close();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(address().name())) << "a forked child leaves it";
  second.close();
  EXPECT_FALSE(std::filesystem::exists(address().name()));
}

TEST_F(ListenerTest, TheDirectoryIsItsUsersAlone) {
  ASSERT_EQ(::mkdir(directory_.path("private").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(directory_.path("private").c_str(), 0755), 0);
  EXPECT_THROW(static_cast<void>(DescriptorListener::listen(address(), {}, soon())), InvalidUse);
  ASSERT_EQ(::chmod(directory_.path("private").c_str(), 0700), 0);
  EXPECT_NO_THROW(static_cast<void>(DescriptorListener::listen(address(), {}, soon())));
}

TEST(SocketAddress, IsCheckedBeforeItIsUsed) {
  EXPECT_THROW(static_cast<void>(SocketAddress::at_path("")), InvalidUse);
  EXPECT_THROW(static_cast<void>(SocketAddress::at_path("relative")), InvalidUse);
  EXPECT_THROW(static_cast<void>(SocketAddress::at_path("/" + std::string(107, 'a'))), InvalidUse);
  EXPECT_NO_THROW(static_cast<void>(SocketAddress::at_path("/" + std::string(106, 'a'))));
  EXPECT_THROW(static_cast<void>(SocketAddress::abstract(std::string(108, 'a'))), InvalidUse);
  EXPECT_EQ(SocketAddress::abstract("name").to_string(), "@name");
  EXPECT_THROW(static_cast<void>(SocketAddress::in_private_directory("../name")), InvalidUse);
  EXPECT_NE(SocketAddress::in_private_directory("name").name().find("cuvmm-sharing"), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::sharing
