// How few messages attaching takes, and that nothing is given to whom the introduction does not admit.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <set>

#include "raw_packets.hpp"
#include "sharing/content.hpp"
#include "sharing/shared_range_fixture.hpp"
#include "sharing/socket_io.hpp"

namespace cuvmm::sharing {
namespace {

using namespace test;

// A socket of the system, without the library.
class RawSocket {
 public:
  explicit RawSocket(const SocketAddress& address) {
    name_.sun_family = AF_UNIX;
    address.name().copy(name_.sun_path + 1, sizeof name_.sun_path - 2);
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.name().size());
  }
  void listen() const {
    EXPECT_EQ(::bind(socket_.get(), pointer(), size_), 0);
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
  }
  void connect() const { EXPECT_EQ(::connect(socket_.get(), pointer(), size_), 0); }
  void accept() {
    wait(socket_.get());
    socket_ = UniqueDescriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  void send(MessageKind kind, const Bytes& content, std::uint32_t number = 0, bool is_reply = false,
            const std::vector<int>& descriptors = {}, int version = protocol_version) const {
    PacketHeader header = only_packet(content.size(), static_cast<std::uint32_t>(descriptors.size()));
    header.kind = kind;
    header.number = number;
    header.is_reply = is_reply;
    Bytes packet = packet_of(header, content);
    packet.at(4) = static_cast<std::byte>(version);
    send_raw(socket_.get(), packet, descriptors);
  }
  // Nothing once the peer has ended, or where nothing comes.
  [[nodiscard]] std::optional<Message> receive() const {
    MessageAssembler assembler({});
    for (;;) {
      wait(socket_.get());
      ReceivedPacket packet = receive_now(socket_.get());
      if (packet.ended || packet.error == EAGAIN) return std::nullopt;
      if (packet.error != 0) continue;  // that what it sent was not read is told once, before what came
      EXPECT_EQ(assembler.add(packet.bytes, std::move(packet.descriptors)), std::nullopt);
      return assembler.take();
    }
  }
  [[nodiscard]] std::vector<Message> receive_all() const {
    std::vector<Message> all;
    while (auto message = receive()) all.push_back(std::move(*message));
    return all;
  }

 private:
  static void wait(int socket) {
    pollfd ready{socket, POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 120'000), 1);
  }
  [[nodiscard]] const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&name_); }

  UniqueDescriptor socket_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  sockaddr_un name_{};
  socklen_t size_ = 0;
};

class Attaching : public SharedRange {
 protected:
  static std::set<int> open_numbers() {
    std::set<int> numbers;
    for (int number = 0; number < 1024; ++number)
      if (::fcntl(number, F_GETFD) >= 0) numbers.insert(number);
    return numbers;
  }
  static SocketAddress new_address() {
    static int last = 0;
    return SocketAddress::abstract("cuvmm-attaching-" + std::to_string(::getpid()) + "-" + std::to_string(++last));
  }
  // What an attacher sends before it waits.
  static Bytes introduction(const std::string& token = {}) { return encode(Introduction{Locality::here(), token}); }
  static Bytes request() { return encode(AttachRequest{"range", AccessRights::read, Locality::here()}); }
  static Bytes first_chunks() { return encode(FetchRequest{0}); }

  // What a publisher answers to whoever says that, and whether it has anybody attached then.
  struct Answers {
    std::vector<Message> messages;
    std::optional<Failure> failure;
    std::size_t descriptors = 0;
  };
  Answers answers_to(const std::function<void(const RawSocket&)>& say, std::size_t most = 100) {
    const auto address = new_address();
    RangePublisherOptions options;
    options.listener.connection.token = "secret";
    auto publisher = RangePublisher::listen(address, options, soon());
    auto range = new_range(2);
    const auto published = publisher.publish("range", range);
    const RawSocket peer(address);
    peer.connect();
    say(peer);
    Answers answers;
    while (answers.messages.size() < most) {
      auto message = peer.receive();
      if (!message) break;
      answers.messages.push_back(std::move(*message));
    }
    for (const Message& each : answers.messages) {
      answers.descriptors += each.descriptors.size();
      if (each.kind == failure_kind) answers.failure = decode_failure(each.bytes);
    }
    EXPECT_EQ(published.attached().size(), answers.failure ? 0U : 1U);
    return answers;
  }
  static void expect_only_refused(const Answers& answers, ErrorKind kind, const std::string& words) {
    ASSERT_EQ(answers.messages.size(), 1U) << "a failure, and the end";
    ASSERT_TRUE(answers.failure);
    EXPECT_EQ(answers.failure->kind, kind) << answers.failure->message();
    EXPECT_NE(answers.failure->message().find(words), std::string::npos) << answers.failure->message();
    EXPECT_EQ(answers.descriptors, 0U);
  }
};

// A publisher that answers nothing before all that attaching asks for has come: attaching waits once.
TEST_F(Attaching, TakesOneRoundTripTheIntroductionIncluded) {
  auto range = new_range(1);
  const auto handle = ShareableHandle::export_from(range.memory_at(0).memory(), HandleType::posix_file_descriptor);
  const auto address = new_address();
  RawSocket publisher(address);
  publisher.listen();
  std::vector<MessageKind> kinds;
  std::jthread answering([&] {
    publisher.accept();
    std::vector<Message> asked;
    for (int count = 0; count < 3; ++count) {
      auto message = publisher.receive();
      if (!message) return;  // the attacher has given up
      asked.push_back(std::move(*message));
    }
    publisher.send(welcome_kind, introduction());
    const Standing standing{.publication = 5, .generation = 1, .bytes = 2_MiB, .extent = 2_MiB, .chunks = 1};
    publisher.send(terms_message, encode(Terms{standing, AccessRights::read}), asked.at(1).number, true);
    const ChunkTable table{.publication = 5, .chunks = {{.offset = 0, .bytes = 2_MiB}}};
    publisher.send(chunks_message, encode(table), asked.at(2).number, true, {handle.descriptor()});
    for (Message& rest : publisher.receive_all()) asked.push_back(std::move(rest));
    for (const Message& each : asked) kinds.push_back(each.kind);
  });
  { const auto attached = AttachedRange::attach(machine_.driver(), address, "range", {}, soon()); }
  answering.join();
  EXPECT_EQ(kinds, (std::vector<MessageKind>{hello_kind, attach_message, fetch_message, mapped_message}));
}

TEST_F(Attaching, WhatIsAskedWithTheIntroductionIsAnsweredOnceThatIsAccepted) {
  const auto answers = answers_to(
      [](const RawSocket& peer) {
        peer.send(hello_kind, introduction("secret"));
        peer.send(attach_message, request(), 1);
        peer.send(fetch_message, first_chunks(), 2);
      },
      3);
  ASSERT_EQ(answers.messages.size(), 3U);
  EXPECT_EQ(answers.messages[0].kind, welcome_kind);
  EXPECT_EQ(answers.messages[1].kind, terms_message);
  EXPECT_EQ(answers.messages[2].kind, chunks_message);
  EXPECT_EQ(answers.descriptors, 2U);
}

TEST_F(Attaching, WithAnotherTokenNothingThatIsAskedIsAnswered) {
  expect_only_refused(answers_to([](const RawSocket& peer) {
                        peer.send(hello_kind, introduction("guess"));
                        peer.send(attach_message, request(), 1);
                        peer.send(fetch_message, first_chunks(), 2);
                      }),
                      ErrorKind::not_permitted, "token");
}

TEST_F(Attaching, WithoutAnIntroductionNothingIsAnswered) {
  expect_only_refused(answers_to([](const RawSocket& peer) {
                        peer.send(attach_message, request(), 1);
                        peer.send(fetch_message, first_chunks(), 2);
                        peer.send(hello_kind, introduction("secret"));
                      }),
                      ErrorKind::protocol_violation, "no introduction");
}

TEST_F(Attaching, InAnotherVersionNothingIsAnsweredAndBothAreNamed) {
  expect_only_refused(answers_to([](const RawSocket& peer) {
                        peer.send(hello_kind, introduction("secret"), 0, false, {}, protocol_version + 1);
                        peer.send(attach_message, request(), 1);
                        peer.send(fetch_message, first_chunks(), 2);
                      }),
                      ErrorKind::protocol_violation, "version 2, and this library speaks version 1");
}

// The refusal comes while requests are sent, or when they have been: it is the same.
TEST_F(Attaching, WhoIsNotAdmittedLearnsWhy) {
  const auto address = new_address();
  RangePublisherOptions options;
  options.listener.connection.token = "secret";
  auto publisher = RangePublisher::listen(address, options, soon());
  auto range = new_range(1);
  const auto published = publisher.publish("range", range);
  AttachOptions attach_options;
  const auto attach = [&] {
    return AttachedRange::try_attach(machine_.driver(), address, "range", attach_options, soon());
  };
  for (int round = 0; round < 200; ++round) {
    attach_options.connection.token = "guess";
    const auto failure = refusal_of(ErrorKind::not_permitted, attach);
    EXPECT_NE(failure.message().find("ConnectionOptions::token"), std::string::npos) << failure.message();
  }
  attach_options.connection.token = "secret";
  EXPECT_TRUE(attach());
  attach_options.connection.locality = Locality{"berta", "another boot", "26:1"};
  refusal_of(ErrorKind::not_supported, attach);
}

// What a listener answers that is no publisher of this library, or of another version of it.
class FalseListener : public Attaching {
 protected:
  Failure attached_to(const std::function<void(const RawSocket&)>& answer) {
    const auto address = new_address();
    RawSocket listener(address);
    listener.listen();
    const std::jthread answering([&] {
      listener.accept();
      for (int message = 0; message < 3; ++message) static_cast<void>(listener.receive());
      answer(listener);
      static_cast<void>(listener.receive_all());
    });
    const auto attached = AttachedRange::try_attach(machine_.driver(), address, "range", {}, soon());
    return attached ? Failure{} : attached.failure();
  }
};

TEST_F(FalseListener, OfAnotherVersionIsNamedWithBoth) {
  const auto failure = attached_to(
      [](const RawSocket& peer) { peer.send(welcome_kind, introduction(), 0, false, {}, protocol_version + 1); });
  EXPECT_EQ(failure.kind, ErrorKind::protocol_violation);
  EXPECT_NE(failure.message().find("version 2, and this library speaks version 1"), std::string::npos)
      << failure.message();
  EXPECT_NE(failure.message().find("the same version of cuvmm"), std::string::npos) << failure.message();
}

TEST_F(FalseListener, ThatGivesTermsBeforeItsWelcomeIsNotBelieved) {
  const auto failure = attached_to([](const RawSocket& peer) {
    const Standing standing{.publication = 5, .generation = 1, .bytes = 2_MiB, .extent = 2_MiB, .chunks = 1};
    peer.send(terms_message, encode(Terms{standing, AccessRights::read}), 1, true);
  });
  EXPECT_EQ(failure.kind, ErrorKind::protocol_violation) << failure.message();
  EXPECT_NE(failure.message().find("no welcome"), std::string::npos) << failure.message();
}

// The limits are those of ranges, whatever those of the connection were before.
TEST_F(Attaching, OverAConnectionWithSmallLimitsIsAsOverAnyOther) {
  auto range = new_range(3);
  const auto published = publisher_.publish("range", range);
  for (const MessageLimits limits :
       {MessageLimits{}, MessageLimits{.bytes = 200, .descriptors = 1}, MessageLimits{.bytes = 0, .descriptors = 0}}) {
    auto [one, other] = DescriptorSocket::pair(limits);
    publisher_.serve(std::move(one));
    const auto attached = AttachedRange::try_attach(machine_.driver(), std::move(other), "range", {}, soon());
    ASSERT_TRUE(attached) << attached.failure().message();
    EXPECT_EQ(attached->range().chunks().size(), 3U);
  }
}

// A publisher that cannot send its answer says why, and does not just hang up.
TEST_F(Attaching, WhoCannotBeAnsweredLearnsWhy) {
  auto range = new_range(1);
  const std::set<int> before = open_numbers();
  const auto published = publisher_.publish("range", range);
  std::set<int> handles = open_numbers();  // the publisher's, and what the emulated driver keeps for it
  for (const int each : before) handles.erase(each);
  ASSERT_FALSE(handles.empty());
  auto [one, other] = DescriptorSocket::pair();
  std::map<int, UniqueDescriptor> copies;
  for (const int each : handles) copies[each] = UniqueDescriptor(::fcntl(each, F_DUPFD_CLOEXEC, 0));
  for (const int each : handles) ::close(each);  // somebody does so behind the publisher's back
  publisher_.serve(std::move(one));
  const auto failure = refusal_of(ErrorKind::invalid_use, [&, connection = std::move(other)]() mutable {
    return AttachedRange::try_attach(machine_.driver(), std::move(connection), "range", {}, soon());
  });
  EXPECT_NE(failure.message().find("not open"), std::string::npos) << failure.message();
  for (const auto& [number, copy] : copies) ASSERT_EQ(::dup3(copy.get(), number, O_CLOEXEC), number);
  EXPECT_TRUE(try_attach());
}

}  // namespace
}  // namespace cuvmm::sharing
