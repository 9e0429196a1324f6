// The connection when a system call fails: the linker sends those that it makes through here (--wrap).
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "open_descriptors.hpp"
#include "raw_packets.hpp"
#include "sharing/range_messages.hpp"

namespace {

// Which of the next calls fails, and how; 0: none.
std::atomic<int> failing_send = 0;
std::atomic<int> failing_receive = 0;
std::atomic<int> error_to_answer = 0;
std::atomic<int> receive_that_tells_the_end = 0;  // though there is more

bool is_due(std::atomic<int>& countdown) {
  if (countdown == 0) return false;
  return --countdown == 0;
}

// What a peer who never ends sends, and how much of it: then it ends.
std::vector<std::byte> endless_packet;
int endless_left = 0;
std::atomic<int> endless_socket = -1;  // where
constexpr std::size_t index_in_header = 12;
constexpr std::size_t flags_in_header = 16;

}  // namespace

extern "C" {
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);
ssize_t __real_recvmsg(int socket, msghdr* message, int flags);

ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags) {
  if (!is_due(failing_send)) return __real_sendmsg(socket, message, flags);
  errno = error_to_answer;
  return -1;
}
ssize_t __wrap_recvmsg(int socket, msghdr* message, int flags) {
  if (socket == endless_socket) {
    message->msg_controllen = 0;
    message->msg_flags = 0;
    if (endless_left-- <= 0) return 0;
    std::copy(endless_packet.begin(), endless_packet.end(), static_cast<std::byte*>(message->msg_iov->iov_base));
    if (endless_packet[flags_in_header] == std::byte{0}) {  // its message has more packets: then the next one
      std::uint32_t index = 0;
      std::memcpy(&index, &endless_packet[index_in_header], sizeof index);
      ++index;
      std::memcpy(&endless_packet[index_in_header], &index, sizeof index);
    }
    return static_cast<ssize_t>(endless_packet.size());
  }
  if (is_due(receive_that_tells_the_end)) return 0;
  if (!is_due(failing_receive)) return __real_recvmsg(socket, message, flags);
  errno = error_to_answer;
  return -1;
}
}

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using cuvmm::test::open_descriptors;

constexpr MessageKind greeting = first_free_kind;
constexpr std::size_t files = 300;  // two packets

// Sends descriptors one way and an answer back, and tells how each end fared.
struct Exchange {
  std::string client;
  std::string server;
};

std::string outcome(const std::function<void()>& work) {
  try {
    work();
    return "done";
  } catch (const Error& error) {
    return std::string(to_string(error.kind()));
  }
}

Exchange exchange() {
  auto [one, other] = DescriptorSocket::pair();
  const UniqueDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));  // not the socket, which would keep itself open
  const std::vector<int> numbers(files, null.get());
  Exchange result;
  std::jthread serving([&, &server = other] {
    result.server = outcome([&] {
      const Message request = server.receive(Deadline::in(120s));
      if (request.descriptors.size() != files) throw InvalidUse({});
      server.reply(request, {.kind = greeting}, Deadline::in(120s));
    });
    server.close();
  });
  result.client = outcome([&, &client = one] {
    static_cast<void>(client.ask({.kind = greeting, .descriptors = numbers}, Deadline::in(120s)));
  });
  one.close();
  serving.join();
  return result;
}

// As Linux does for a packet that comes, with the end behind it, between two of its looks.
TEST(SystemCallFailures, AnEndThatIsToldAheadOfAPacketIsNotBelieved) {
  for (const int which : {1, 2}) {
    auto [one, other] = DescriptorSocket::pair();
    for (int sent = 0; sent < 2; ++sent) one.send({.kind = greeting}, Deadline::in(120s));
    one.close();
    receive_that_tells_the_end = which;
    for (int received = 0; received < 2; ++received) EXPECT_EQ(other.receive(Deadline::in(120s)).kind, greeting);
    EXPECT_EQ(receive_that_tells_the_end, 0);
    EXPECT_THROW(static_cast<void>(other.receive(Deadline::in(120s))), PeerGone);
  }
}

TEST(SystemCallFailures, PassingOnesAreNoFailures) {
  for (const int error : {EINTR, EAGAIN})
    for (std::atomic<int>* const which : {&failing_send, &failing_receive})
      for (int call = 1; call <= 4; ++call) {
        error_to_answer = error;
        *which = call;
        const Exchange result = exchange();
        EXPECT_EQ(result.client, "done") << error << " " << call;
        EXPECT_EQ(result.server, "done") << error << " " << call;
        *which = 0;
      }
  for (const int error : {ETOOMANYREFS, ENOBUFS}) {
    error_to_answer = error;
    failing_send = 1;
    EXPECT_EQ(exchange().client, "done") << error;
  }
  failing_send = 0;
}

TEST(SystemCallFailures, LastingOnesAreTypedAtBothEndsAndLeaveNothing) {
  for (const int error : {ENOMEM, EPERM, ECONNRESET})
    for (std::atomic<int>* const which : {&failing_send, &failing_receive})
      for (int call = 1; call <= 3; ++call) {
        const std::size_t open = open_descriptors();
        error_to_answer = error;
        *which = call;
        const Exchange result = exchange();
        const bool failed = result.client != "done" || result.server != "done";
        // A reset is looked at twice, since what came before it can still be read.
        if (error != ECONNRESET || which == &failing_send) {
          EXPECT_TRUE(failed) << error << " " << call;
        }
        EXPECT_EQ(open_descriptors(), open) << error << " " << call;
        *which = 0;
      }
  const Exchange mended = exchange();
  EXPECT_EQ(mended.client, "done");
  EXPECT_EQ(mended.server, "done");
}

// Until it goes out of scope the peer has that packet to be received, again and again.
class EndlessPeer {
 public:
  static constexpr int count = 100'000;
  EndlessPeer(int socket, std::vector<std::byte> packet) {
    endless_packet = std::move(packet);
    endless_left = count;
    endless_socket = socket;
  }
  EndlessPeer(const EndlessPeer&) = delete;
  EndlessPeer& operator=(const EndlessPeer&) = delete;
  ~EndlessPeer() { endless_socket = -1; }
  [[nodiscard]] static int sent() { return count - endless_left; }
};

Deadline now() {
  return Deadline::at(Deadline::Clock::now());
}

TEST(SystemCallFailures, C18_APeerThatGoesOnSendingHoldsUpNobodyBeyondTheDeadline) {
  PacketHeader stale = test::only_packet(0);
  stale.is_reply = true;
  {
    auto [one, other] = DescriptorSocket::pair();
    const EndlessPeer peer(one.descriptor(), test::packet_of(stale));
    const auto received = one.try_receive(now());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.failure().kind, ErrorKind::timed_out) << received.failure().message();
    EXPECT_GE(one.descriptor(), 0) << "the connection goes on";
  }
  {
    auto [one, other] = DescriptorSocket::pair();
    const EndlessPeer peer(one.descriptor(), test::packet_of(stale));
    const auto answer = one.try_ask({.kind = greeting}, now());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.failure().kind, ErrorKind::timed_out) << answer.failure().message();
  }
  {
    auto [one, other] = DescriptorSocket::pair();
    const EndlessPeer peer(one.descriptor(), test::packet_of(test::only_packet(0)));
    const auto answer = one.try_ask({.kind = greeting}, now());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.failure().kind, ErrorKind::timed_out) << answer.failure().message();
    EXPECT_TRUE(one.try_receive(now())) << "what came meanwhile is kept";
  }
}

TEST(SystemCallFailures, C18_NorOneWhoseMessageDoesNotEnd) {
  auto [one, other] = DescriptorSocket::pair();
  PacketHeader part = test::only_packet(1);
  part.total_bytes = 1 << 20;
  part.last = false;
  const EndlessPeer peer(one.descriptor(), test::packet_of(part, {std::byte{1}}));
  const auto received = one.try_receive(now());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.failure().kind, ErrorKind::timed_out) << received.failure().message();
  EXPECT_LT(one.descriptor(), 0) << "in the middle of a message the connection cannot go on";
}

TEST(SystemCallFailures, C18_WhoCannotBeSentToIsNotListenedToForEver) {
  auto [one, other] = DescriptorSocket::pair();
  const EndlessPeer peer(one.descriptor(), test::packet_of(test::only_packet(0)));
  error_to_answer = EPIPE;
  failing_send = 1;
  EXPECT_EQ(outcome([&, &s = one] { s.send({.kind = greeting}, Deadline::in(120s)); }), "peer gone");
  EXPECT_LT(peer.sent(), EndlessPeer::count);
}

// Kept up to date by a publisher who says the same again and again.
TEST(SystemCallFailures, C18_APublisherThatGoesOnTellingNothingNewHoldsUpNobody) {
  const Driver driver = Driver::emulated();
  auto range = MappedRange::create(driver, {.capacity = 16_MiB,
                                            .memory = {.handle_types = HandleType::posix_file_descriptor},
                                            .chunks = ChunkPolicy::fixed(2_MiB)});
  range.append(2_MiB);
  auto publisher = RangePublisher::unconnected();
  const auto published = publisher.publish("range", range);
  const auto connect = [&] {
    auto [one, other] = DescriptorSocket::pair(range_message_limits);
    publisher.serve(std::move(one));
    return std::move(other);
  };
  auto asking = connect();
  const auto request = encode(AttachRequest{"range", AccessRights::read, Locality::of(driver)});
  const auto terms =
      decode_terms(asking.ask({.kind = attach_message, .bytes = request}, Deadline::in(120s)).bytes).value();
  auto attached = AttachedRange::attach(driver, connect(), "range", {}, Deadline::in(120s));
  EXPECT_FALSE(attached.poll());

  const auto told = encode(terms.standing);
  PacketHeader header = test::only_packet(told.size());
  header.kind = standing_message;
  {
    const EndlessPeer peer(attached.descriptor(), test::packet_of(header, told));
    EXPECT_FALSE(attached.poll());
    EXPECT_LT(peer.sent(), EndlessPeer::count / 10);
    try {
      static_cast<void>(attached.wait(now()));
      ADD_FAILURE() << "there is no news";
    } catch (const TimedOut& error) {
      EXPECT_EQ(error.call(), "AttachedRange::wait");
    }
    EXPECT_LT(peer.sent(), EndlessPeer::count / 10);
    EXPECT_EQ(attached.follow(now()), 2_MiB);
  }
  EXPECT_FALSE(attached.poll()) << "the publisher is as good as before";
}

}  // namespace
}  // namespace cuvmm::sharing
